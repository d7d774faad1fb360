//! Catching: a panic of the code under test is a finding, with its message and its place.
//!
//! Knows nothing of: what is run.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on panics of this process are kept for [`caught`] and not printed.
pub fn quietly() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
        let place = info.location().map(|at| format!(" ({}:{})", at.file(), at.line())).unwrap_or_default();
        LAST.with(|last| *last.borrow_mut() = text.unwrap_or_default() + &place);
    }));
}

/// Runs to the end, or returns the message of a panic.
///
/// # Errors
/// The message and place of the panic.
pub fn caught<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| LAST.with(|last| last.borrow().clone()))
}

/// The guarantee of the first of these patterns that is in the message.
pub fn promise_in(message: &str, promises: &[(&str, &'static str)]) -> Option<&'static str> {
    promises.iter().find(|(words, _)| message.contains(words)).map(|(_, promise)| *promise)
}
