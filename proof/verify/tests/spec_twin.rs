//! The specification and the store itself answer every operation alike.
//!
//! Knows nothing of: members, the order of histories.

mod common;

use kattu_kv::store::Store;
use kattu_verify::convert::{self, Request};
use kattu_verify::history::{Answer, Operation, Rejection};
use kattu_verify::spec::Spec;
use proptest::prelude::*;

/// The answer of the gate and the store to an operation.
fn ask_store(store: &mut Store, operation: &Operation) -> Result<(i64, Answer), Rejection> {
    convert::check(operation)?;
    let response = match convert::to_request(operation) {
        Request::Command(command) => store.apply(&command),
        Request::Query(query, _) => store.query(&query),
    };
    let response = response.map_err(convert::to_rejection)?;
    Ok((response.revision.0, convert::from_answer(&response.answer)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_specification_answers_as_the_store_does(operations in proptest::collection::vec(common::operation(), 1..60)) {
        let (mut spec, mut store) = (Spec::new(), Store::new());
        for operation in &operations {
            prop_assert_eq!(spec.apply(operation), ask_store(&mut store, operation), "{:?}", operation);
        }
    }

    #[test]
    fn what_is_undone_was_never_done(operations in proptest::collection::vec(common::operation(), 1..40)) {
        let mut spec = Spec::new();
        for operation in &operations {
            let mut again = spec.clone();
            let before = spec.clone();
            let _ = again.apply(operation);
            if again.revision() > before.revision() {
                again.undo();
            }
            if !matches!(operation, Operation::Compact { .. }) {
                prop_assert_eq!(&again, &before);
            }
            let _ = spec.apply(operation);
        }
    }
}
