//! member list|add|remove|promote|update, and move-leader.
//!
//! Lines are etcdctl's; a refusal ends with the next step.
//! Knows nothing of: the protocol of a change.

use crate::connect::{Reach, block_on};
use crate::ended;
use crate::output::{self, Format};
use clap::{Args, Subcommand};
use kattu_client::{Client, Endpoint, Failure, Kind};
use kattu_output::{Ended, Outcome};
use kattu_proto::etcdserverpb as pb;
use serde_json::{Value, json};

/// The verbs about members.
#[derive(Subcommand, Debug)]
pub(crate) enum MemberVerb {
    /// List the members of the cluster
    List(ListArgs),
    /// Add a member, and print the command that starts it
    Add(AddArgs),
    /// Remove a member for good
    Remove(OneArgs),
    /// Make a learner that has caught up a voter
    Promote(OneArgs),
    /// Change the peer URLs of a member
    Update(UpdateArgs),
}

/// Arguments of member list.
#[derive(Args, Debug)]
#[command(after_help = "\
A member without a name has been added and has not started yet. A learner has no vote: it was added as one, or it has
not caught up yet.

Example:
  kattu member list -o json")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    reach: Reach,
    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Arguments of member add.
#[derive(Args, Debug)]
#[command(after_help = "\
The new member is a learner until it has caught up; then it becomes a voter by itself, unless it was added with --learner.
So one that never starts, or cannot be reached, does not harm the others: remove it again.
The printed variables are for its environment; the last line starts it on its own machine. Add --data-dir, an empty
directory, and --listen-client-urls there, as on the other members.

Examples:
  kattu member add n4 --peer-urls http://10.0.0.4:2380
  kattu member add n5 --peer-urls http://10.0.0.5:2380 --learner")]
pub(crate) struct AddArgs {
    /// Name of the member
    name: String,
    /// URLs at which the other members will reach it, separated by commas
    #[arg(long, value_delimiter = ',', required = true)]
    peer_urls: Vec<String>,
    /// Keep it a learner until it is promoted
    #[arg(long)]
    learner: bool,
    #[command(flatten)]
    reach: Reach,
    /// Output format; default: lines as etcdctl's
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// Arguments of member remove and member promote.
#[derive(Args, Debug)]
#[command(after_help = "\
`kattu member list` shows ids. A removed member stops by itself and its id is never used again: to use its machine again,
delete its data directory and add it as a new member.

Examples:
  kattu member remove 8e9e05c52164694d
  kattu member promote 91bc3c398fb3c146")]
pub(crate) struct OneArgs {
    /// Id of the member, in hex
    #[arg(value_parser = parse_id)]
    id: u64,
    #[command(flatten)]
    reach: Reach,
    /// Output format; default: lines as etcdctl's
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// Arguments of member update.
#[derive(Args, Debug)]
#[command(after_help = "\
Changes the URLs at which the others reach the member, and nothing else; then start it there.

Example:
  kattu member update 8e9e05c52164694d --peer-urls http://10.0.0.9:2380")]
pub(crate) struct UpdateArgs {
    /// Id of the member, in hex
    #[arg(value_parser = parse_id)]
    id: u64,
    /// URLs at which the other members will reach it, separated by commas
    #[arg(long, value_delimiter = ',', required = true)]
    peer_urls: Vec<String>,
    #[command(flatten)]
    reach: Reach,
    /// Output format; default: lines as etcdctl's
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// Arguments of move-leader.
#[derive(Args, Debug)]
#[command(after_help = "\
Any member can be the endpoint: the command finds the leader. Returns when the target leads. Nothing is lost, and writes
wait a few milliseconds.

Example:
  kattu move-leader c89feb932daef420")]
pub(crate) struct MoveLeaderArgs {
    /// Id of the voter that becomes leader, in hex
    #[arg(value_parser = parse_id)]
    target: u64,
    #[command(flatten)]
    reach: Reach,
    /// Output format; default: lines as etcdctl's
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

/// An id as `member list` shows it.
fn parse_id(text: &str) -> Result<u64, String> {
    match u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16) {
        Ok(id) if id != 0 => Ok(id),
        _ => Err("expected a member's id in hex; `kattu member list` shows them".to_string()),
    }
}

/// Runs one of the verbs.
pub(crate) fn run(verb: &MemberVerb) -> Outcome {
    match verb {
        MemberVerb::List(args) => list(args),
        MemberVerb::Add(args) => add(args),
        MemberVerb::Remove(args) => remove(args),
        MemberVerb::Promote(args) => promote(args),
        MemberVerb::Update(args) => update(args),
    }
}

/// Lists the members.
pub(crate) fn list(args: &ListArgs) -> Outcome {
    let answer = block_on(async {
        args.reach.client()?.member_list().await.map_err(|failure| ended::of_read(&failure))
    })?;
    match args.output {
        Format::Json => output::print_json(&members_json(&answer.members)),
        Format::Table => print_members(&answer.members),
    }
}

fn add(args: &AddArgs) -> Outcome {
    if args.name.is_empty() || args.name.contains(['=', ',']) || args.name.chars().any(char::is_control) {
        return Err(Ended::usage("a name needs at least one character, and no '=', ',' or line breaks"));
    }
    let urls = args.peer_urls.iter().map(|url| url.trim().to_string()).collect();
    let answer =
        block_on(async { args.reach.client()?.member_add(urls, args.learner).await.map_err(refused) })?;
    let added = answer.member.clone().unwrap_or_default();
    match args.output {
        Some(Format::Json) => output::print_json(&json!({
            "cluster_id": cluster_id(answer.header.as_ref()),
            "member": member_json(&added),
            "members": members_json(&answer.members),
            "initial_cluster": initial_cluster(&answer.members, added.id, &args.name),
        })),
        Some(Format::Table) => print_members(&answer.members),
        None => {
            let roll = initial_cluster(&answer.members, added.id, &args.name);
            let cluster = cluster_id(answer.header.as_ref());
            output::print(advice_for(&added, &args.name, &cluster, &roll).as_bytes())
        }
    }
}

/// The member list as `--initial-cluster` has it. A member without a name is named by its id: any name will do there.
fn initial_cluster(members: &[pb::Member], added: u64, name: &str) -> String {
    let named = |member: &pb::Member| match member.name.as_str() {
        _ if member.id == added => name.to_string(),
        "" => format!("{:x}", member.id),
        name => name.to_string(),
    };
    let parts = members.iter().flat_map(|member| {
        let name = named(member);
        member.peer_ur_ls.iter().map(move |url| format!("{name}={url}"))
    });
    parts.collect::<Vec<_>>().join(",")
}

/// What etcdctl prints, and the command line that means the same.
fn advice_for(added: &pb::Member, name: &str, cluster: &str, roll: &str) -> String {
    let urls = added.peer_ur_ls.join(",");
    let id = added.id;
    format!(
        "Member {id:16x} added to cluster {cluster:>16}\n\n\
         ETCD_NAME=\"{name}\"\n\
         ETCD_INITIAL_CLUSTER=\"{roll}\"\n\
         ETCD_INITIAL_ADVERTISE_PEER_URLS=\"{urls}\"\n\
         ETCD_INITIAL_CLUSTER_STATE=\"existing\"\n\n\
         kattu serve --name {name} --initial-cluster-state existing --initial-cluster {roll} \
         --initial-advertise-peer-urls {urls} --listen-peer-urls {urls}\n"
    )
}

fn remove(args: &OneArgs) -> Outcome {
    let answer = block_on(async { args.reach.client()?.member_remove(args.id).await.map_err(refused) })?;
    let cluster = cluster_id(answer.header.as_ref());
    let line = format!("Member {:16x} removed from cluster {cluster:>16}\n", args.id);
    print_changed(args.output, args.id, &cluster, &answer.members, &line)
}

fn promote(args: &OneArgs) -> Outcome {
    let answer = block_on(async { args.reach.client()?.member_promote(args.id).await.map_err(refused) })?;
    let cluster = cluster_id(answer.header.as_ref());
    let line = format!("Member {:16x} promoted in cluster {cluster:>16}\n", args.id);
    print_changed(args.output, args.id, &cluster, &answer.members, &line)
}

fn update(args: &UpdateArgs) -> Outcome {
    let urls = args.peer_urls.iter().map(|url| url.trim().to_string()).collect();
    let answer =
        block_on(async { args.reach.client()?.member_update(args.id, urls).await.map_err(refused) })?;
    let cluster = cluster_id(answer.header.as_ref());
    let line = format!("Member {:16x} updated in cluster {cluster:>16}\n", args.id);
    print_changed(args.output, args.id, &cluster, &answer.members, &line)
}

fn print_changed(
    output: Option<Format>,
    id: u64,
    cluster: &str,
    members: &[pb::Member],
    line: &str,
) -> Outcome {
    match output {
        Some(Format::Json) => output::print_json(&json!({
            "cluster_id": cluster, "member_id": format!("{id:x}"), "members": members_json(members),
        })),
        Some(Format::Table) => print_members(members),
        None => output::print(line.as_bytes()),
    }
}

/// Transfers leadership.
pub(crate) fn move_leader(args: &MoveLeaderArgs) -> Outcome {
    let from = block_on(async {
        let client = args.reach.client()?;
        let (leader, at) = leader_of(&client, args).await?;
        let place = at.endpoints().first().expect("a client has an endpoint");
        if leader != args.target {
            at.move_leader(place, args.target).await.map_err(refused)?;
        }
        Ok(leader)
    })?;
    let (from, to) = (format!("{from:x}"), format!("{:x}", args.target));
    match args.output {
        Some(Format::Json) => output::print_json(&json!({"from": from, "to": to})),
        Some(Format::Table) => output::print_table(&["from", "to"], vec![vec![from, to]]),
        None => output::print(format!("Leadership transferred from {from} to {to}\n").as_bytes()),
    }
}

/// The leader's id, and a client of that member alone: at one of the given endpoints, or at the leader's client URL.
async fn leader_of(client: &Client, args: &MoveLeaderArgs) -> Result<(u64, Client), Ended> {
    let mut leader = 0;
    let mut failure: Option<Failure> = None;
    for endpoint in client.endpoints() {
        match client.status(endpoint).await {
            Ok(status) => {
                if status.leader != 0 && status.header.is_some_and(|header| header.member_id == status.leader)
                {
                    return Ok((status.leader, only(endpoint, args)?));
                }
                leader = if status.leader == 0 { leader } else { status.leader };
            }
            Err(why) => failure = Some(why),
        }
    }
    if leader == 0 {
        return Err(match failure {
            Some(failure) => ended::of_read(&failure),
            None => Ended::failed(
                "no leader; `kattu status` shows which members can be reached: a majority must be",
            ),
        });
    }
    let members = client.member_list().await.map_err(|failure| ended::of_read(&failure))?.members;
    let urls = members.iter().find(|member| member.id == leader).map(|member| &member.client_ur_ls);
    let Some(url) = urls.and_then(|urls| urls.first()) else {
        return Err(Ended::failed(format!(
            "the leader, {leader:x}, has published no client URL; name it with --endpoints"
        )));
    };
    Ok((leader, args.reach.client_of([url.as_str()])?))
}

fn only(endpoint: &Endpoint, args: &MoveLeaderArgs) -> Result<Client, Ended> {
    args.reach.client_of([endpoint.name.as_str()])
}

/// A change that failed, with what to do next.
fn refused(failure: Failure) -> Ended {
    let text = failure.message.strip_prefix("etcdserver: ").unwrap_or(&failure.message);
    let next = match text {
        _ if failure.kind == Kind::Unknown => {
            "it may have happened: check `kattu member list` before you retry"
        }
        "member not found" => "`kattu member list` shows the members",
        "given member URLs are invalid" => "expected http://host:port that the others can reach",
        "Peer URLs already exists" => {
            "`kattu member list` shows which member has them; remove that member, or use other URLs"
        }
        "re-configuration failed due to not enough started members" => {
            "start the members that do not answer, or remove those first (`kattu member list`, `kattu status`)"
        }
        "can only promote a learner member" => "it is a voter already",
        "can only promote a learner member which is in sync with leader" => {
            "wait until its applied index follows the leader's (`kattu status`), then retry"
        }
        "too many learner members in cluster" => "promote or remove a learner first",
        "unhealthy cluster" => "wait until the change under way is complete, then retry",
        "bad leader transferee" => {
            "only a voter can lead: `kattu member list` shows which members are learners"
        }
        "not leader" => "the leader has just changed: retry",
        _ => return ended::of_call(failure),
    };
    let ended = ended::of_call(failure);
    Ended::with_code(ended.code(), format!("{}; {next}", ended.message()))
}

fn cluster_id(header: Option<&pb::ResponseHeader>) -> String {
    format!("{:x}", header.map_or(0, |header| header.cluster_id))
}

fn member_json(member: &pb::Member) -> Value {
    json!({
        "id": format!("{:x}", member.id),
        "name": member.name,
        "peer_urls": member.peer_ur_ls,
        "client_urls": member.client_ur_ls,
        "learner": member.is_learner,
    })
}

fn members_json(members: &[pb::Member]) -> Value {
    members.iter().map(member_json).collect()
}

fn print_members(members: &[pb::Member]) -> Outcome {
    let row = |member: &pb::Member| {
        vec![
            format!("{:x}", member.id),
            member.name.clone(),
            member.peer_ur_ls.join("\n"),
            member.client_ur_ls.join("\n"),
            member.is_learner.to_string(),
        ]
    };
    let head = ["id", "name", "peer urls", "client urls", "learner"];
    output::print_table(&head, members.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kattu_client::Code;

    fn member(id: u64, name: &str, url: &str) -> pb::Member {
        pb::Member { id, name: name.to_string(), peer_ur_ls: vec![url.to_string()], ..Default::default() }
    }

    #[test]
    fn ids_are_read_as_they_are_shown() {
        assert_eq!(parse_id("8e9e05c52164694d"), Ok(0x8e9e_05c5_2164_694d));
        assert_eq!(parse_id("0xab"), Ok(0xab));
        for wrong in ["", "0", "n1", "-1", "10000000000000000"] {
            assert!(parse_id(wrong).is_err(), "{wrong}");
        }
    }

    /// The four lines are etcdctl's, which scripts evaluate.
    #[test]
    fn adding_prints_what_starts_the_new_member() {
        let members =
            [member(0xa, "n1", "http://a:1"), member(0xb, "", "http://b:1"), member(0xc, "", "http://c:1")];
        let roll = initial_cluster(&members, 0xc, "n3");
        assert_eq!(roll, "n1=http://a:1,b=http://b:1,n3=http://c:1");
        let text = advice_for(&members[2], "n3", "c1", &roll);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Member                c added to cluster               c1");
        assert_eq!(
            lines[2..6],
            [
                "ETCD_NAME=\"n3\"",
                "ETCD_INITIAL_CLUSTER=\"n1=http://a:1,b=http://b:1,n3=http://c:1\"",
                "ETCD_INITIAL_ADVERTISE_PEER_URLS=\"http://c:1\"",
                "ETCD_INITIAL_CLUSTER_STATE=\"existing\"",
            ]
        );
        assert!(lines[7].starts_with("kattu serve --name n3 --initial-cluster-state existing"), "{text}");
    }

    #[test]
    fn a_refusal_says_what_to_do_next_and_keeps_its_code() {
        let failure = |kind, message: &str| Failure {
            kind,
            code: Code::FailedPrecondition,
            message: message.to_string(),
            reason: Some("because".to_string()),
            endpoint: "here".to_string(),
        };
        let ended = refused(failure(Kind::Refused, "etcdserver: too many learner members in cluster"));
        assert_eq!(ended.code(), 1);
        let expected = "refused: etcdserver: too many learner members in cluster: because (endpoint here); promote or \
                        remove a learner first";
        assert_eq!(ended.message(), expected);
        let ended = refused(failure(Kind::Unknown, "etcdserver: request timed out"));
        assert_eq!(ended.code(), 3);
        assert!(ended.message().contains("kattu member list"), "{}", ended.message());
    }
}
