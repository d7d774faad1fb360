//! The tree over keys: what each operation does, and which error it has, judged by an apply executor. Without a session, in one,
//! and with answers that are lost on the way.

use crate::world::{Act, Kind, World};
use kattu_client::tree::{DEPTH_MAX, Tree, TreeError};
use kattu_client::{Kind as Effect, SessionOptions};
use std::sync::Arc;

fn said<T: std::fmt::Debug>(result: Result<T, TreeError>) -> String {
    match result {
        Err(error) => {
            assert_eq!(error.kind(), Effect::Refused, "{error}");
            error.to_string()
        }
        Ok(done) => panic!("it is done: {done:?}"),
    }
}

async fn trees(world: &Arc<World>) -> [Tree; 2] {
    let session = world.client().open_session(SessionOptions::default()).await.expect("a session");
    [Tree::new(world.client()), Tree::new(Arc::new(session)).below("/other/")]
}

async fn listed(tree: &Tree, path: &str) -> Vec<String> {
    tree.list_directory(path).await.expect(path)
}

#[tokio::test]
async fn files_lie_in_directories_that_are_there() {
    let world = World::new(1).await;
    for tree in trees(&world).await {
        assert!(listed(&tree, "/").await.is_empty());
        tree.write("/motd", "hello").await.expect("the root directory is always there");
        assert_eq!(&tree.read("/motd").await.expect("a file")[..], b"hello");
        assert_eq!(
            said(tree.write("/home/ann/a", "1").await),
            "/home/ann: there is no such file or directory"
        );
        tree.make_directory("/home/ann").await.expect("with its parent");
        tree.make_directory("/home/ann").await.expect("again");
        tree.write("/home/ann/a", "1").await.expect("done");
        tree.write("/home/ann/a", "2").await.expect("over it");
        tree.make_directory("/home/ann/b-c").await.expect("done");
        tree.make_directory("/home/ann/b").await.expect("done");
        tree.write("/home/annie", "a name that begins so").await.expect("done");
        assert_eq!(listed(&tree, "/").await, ["home/", "motd"]);
        assert_eq!(listed(&tree, "/home").await, ["ann/", "annie"]);
        assert_eq!(listed(&tree, "/home/ann").await, ["a", "b-c/", "b/"]);
        assert!(listed(&tree, "/home/ann/b").await.is_empty());
        assert_eq!(&tree.read("/home/ann/a").await.expect("a file")[..], b"2");
    }
}

#[tokio::test]
async fn each_error_names_the_path_that_is_wrong() {
    let world = World::new(1).await;
    for tree in trees(&world).await {
        tree.make_directory("/d/e").await.expect("done");
        tree.write("/d/f", "1").await.expect("done");
        let missing = |path| format!("{path}: there is no such file or directory");
        let is_file = |path| format!("{path}: it is a file, not a directory");
        let is_directory = |path| format!("{path}: it is a directory");
        assert_eq!(said(tree.read("/d/x").await), missing("/d/x"));
        assert_eq!(said(tree.read("/x/y/z").await), missing("/x/y/z"));
        assert_eq!(said(tree.list_directory("/d/x").await), missing("/d/x"));
        assert_eq!(said(tree.write("/x/y", "1").await), missing("/x"));
        for result in [
            tree.read("/d/f/x/y").await.map(drop),
            tree.list_directory("/d/f/x").await.map(drop),
            tree.list_directory("/d/f").await.map(drop),
            tree.write("/d/f/x", "1").await,
            tree.make_directory("/d/f/x").await,
            tree.make_directory("/d/f").await,
            tree.remove("/d/f/x").await,
            tree.remove_directory("/d/f/x").await,
            tree.remove_directory("/d/f").await,
        ] {
            assert_eq!(said(result), is_file("/d/f"));
        }
        assert_eq!(said(tree.read("/d/e").await.map(drop)), is_directory("/d/e"));
        assert_eq!(said(tree.write("/d/e", "1").await), is_directory("/d/e"));
        assert_eq!(said(tree.remove("/d/e").await), is_directory("/d/e"));
        for result in [tree.read("/").await.map(drop), tree.write("/", "1").await, tree.remove("/").await] {
            assert_eq!(said(result), is_directory("/"));
        }
        assert!(said(tree.read("d").await).contains("begin with /"));
        assert_eq!(listed(&tree, "/d").await, ["e/", "f"], "nothing has changed");
    }
}

#[tokio::test]
async fn a_directory_goes_with_everything_in_it_and_what_is_not_there_is_removed_already() {
    let world = World::new(1).await;
    for tree in trees(&world).await {
        let deep = "/a".repeat(DEPTH_MAX);
        tree.make_directory(&deep).await.expect("done");
        tree.make_directory("/a/b").await.expect("done");
        tree.write("/a/b/f", "1").await.expect("done");
        tree.write("/ab", "its name begins so").await.expect("done");
        tree.remove_directory("/a/a").await.expect("done");
        assert_eq!(listed(&tree, "/a").await, ["b/"]);
        assert!(said(tree.list_directory(&deep).await).contains("no such"));
        tree.remove_directory("/a/x/y").await.expect("it is not there");
        tree.remove("/a/x/y").await.expect("it is not there");
        tree.remove("/a/b/f").await.expect("done");
        assert!(listed(&tree, "/a/b").await.is_empty());
        tree.remove_directory("/").await.expect("done");
        assert!(listed(&tree, "/").await.is_empty(), "empty, and there");
    }
}

#[tokio::test]
async fn a_condition_stands_in_front_of_every_operation() {
    let world = World::new(1).await;
    for tree in trees(&world).await {
        tree.make_directory("/d").await.expect("done");
        tree.write("/lock", "ann").await.expect("done");
        let (mine, hers) =
            (tree.when("/lock", "ann").expect("a path"), tree.when("/lock", "eve").expect("a path"));
        let refused = "/lock: its contents are not those of the condition";
        for result in [
            hers.write("/d/f", "1").await,
            hers.write("/x/y", "1").await,
            hers.make_directory("/d/e").await,
            hers.remove("/d/f").await,
            hers.remove_directory("/d").await,
            hers.read("/d/f").await.map(drop),
            hers.list_directory("/d").await.map(drop),
            tree.when("/lock", "").expect("a path").write("/d/f", "1").await,
            tree.when("/lock", "").expect("a path").read("/d/f").await.map(drop),
            tree.when("/d", "x").expect("a path").write("/d/f", "1").await.map_err(|error| {
                assert!(error.to_string().starts_with("/d: its contents"), "{error}");
                TreeError::ConditionNotMet("/lock".to_string())
            }),
        ] {
            assert_eq!(said(result), refused);
        }
        assert!(listed(&tree, "/d").await.is_empty());
        mine.write("/d/f", "1").await.expect("it holds");
        assert_eq!(mine.list_directory("/d").await.expect("it holds"), ["f"]);
        assert_eq!(&mine.read("/d/f").await.expect("it holds")[..], b"1");
        assert!(said(mine.write("/x/y", "1").await).starts_with("/x:"));
        mine.remove("/lock").await.expect("it holds");
        assert_eq!(said(mine.write("/d/f", "2").await), refused);
        // A file that is not there is as good as an empty one.
        let free = tree.when("/lock", "").expect("a path");
        let deep = "/d".repeat(DEPTH_MAX);
        free.make_directory(&deep).await.expect("at the greatest depth, too");
        free.remove_directory("/d/d").await.expect("it holds");
        tree.write("/lock", "").await.expect("done");
        free.write("/lock", "eve").await.expect("it holds");
        assert_eq!(said(free.write("/lock", "ann").await), refused);
        assert_eq!(&tree.read("/lock").await.expect("a file")[..], b"eve");
    }
}

#[tokio::test]
async fn in_a_session_a_lock_is_taken_by_one_caller_although_the_answer_is_lost() {
    let world = World::new(1).await;
    let [_, tree] = trees(&world).await;
    let free = tree.when("/lock", "").expect("a path");
    let mut is_lost = false;
    world.decide(move |seen| {
        let loses = seen.kind == Kind::Write && !std::mem::replace(&mut is_lost, true);
        if loses { Act::ServeAndClose } else { Act::Serve }
    });
    free.write("/lock", "ann").await.expect("its own repetition does not find the lock taken");
    assert!(said(free.write("/lock", "eve").await).contains("condition"));
}
