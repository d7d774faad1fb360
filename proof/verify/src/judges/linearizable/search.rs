//! Search: an order of the operations of a part that explains every answer. [Wing and Gong 1993; Lowe 2017]
//!
//! Each step places one operation next in the order: any that was invoked before the first end among the unplaced ones.
//! If none fits, the last step is undone. A configuration (the placed operations, and the state) that failed once is
//! never entered again.
//!
//! Open operations have no end that forces them; each is tried only where nothing else fits, never where it changes
//! nothing, and of several that do the same only the one invoked first. Operations that share no written key may change
//! places, and an open one may always come later, or never. So if some order exists, there is one in which
//! - each open operation conflicts with an open one after it, or with the next operation that must be placed;
//! - adjacent open operations that do not conflict stand in the order of their classes,
//!
//! and only such orders are tried.
//! Knows nothing of: values, answers.

use super::model::{GUESSES_MAX, Key, State, Step, scatter};
use super::partition::Part;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// An order that explains everything.
    Order,
    /// Proof that there is none.
    None,
    /// Nothing within the allowed steps.
    GivenUp,
}

/// The next candidate for the next place in the order.
#[derive(Clone, Copy)]
enum Cursor {
    /// Among operations that must be placed: a node of the list.
    Must(usize),
    /// Among open ones: which class, and how its undecided conditions are guessed.
    May { class: usize, guess: u32 },
}

/// One step of the order.
struct Placed {
    what: Cursor,
    mark: usize,
    next: Cursor,
    /// Open operations, with their classes, at the end of the order up to here that conflict with none after them. The
    /// last one is always among them.
    loose: Vec<(usize, usize)>,
}

/// Open operations with the same step, by invocation.
struct Class {
    members: Vec<usize>,
    used: usize,
    guesses: u32,
}

/// Searches for an order, and deducts its steps from `steps_left`.
pub(super) fn search(part: &Part, steps_left: &mut u64) -> Found {
    let mut list = List::of(part);
    let mut classes = classes(part);
    let reaches: Vec<Reach> = part.operations.iter().map(|operation| Reach::of(&operation.step)).collect();
    let mut state = State::new(part);
    let mut order: Vec<Placed> = Vec::new();
    let mut seen: HashSet<u128, BuildHasherDefault<AsIs>> = HashSet::default();
    let mut placed = 0_u128;
    let mut cursor = list.first();
    while !list.is_empty() {
        if *steps_left == 0 {
            return Found::GivenUp;
        }
        *steps_left -= 1;
        let mark = state.mark();
        let loose: &[(usize, usize)] = order.last().map_or(&[], |placed| &placed.loose);
        let (fits, what, next) = match cursor {
            Cursor::Must(node) if List::is_end(node) => {
                cursor = Cursor::May { class: 0, guess: 0 };
                continue;
            }
            Cursor::Must(node) => {
                let operation = List::operation(node);
                let holds_all = loose.iter().all(|&(_, open)| reaches[open].meets(&reaches[operation]));
                let fits = holds_all && state.step(&part.operations[operation].step, 0);
                (fits, cursor, Cursor::Must(list.after(node)))
            }
            Cursor::May { class, guess } if class < classes.len() => {
                let Class { members, used, guesses } = &classes[class];
                let may =
                    members.get(*used).filter(|&&open| part.operations[open].invoked < list.first_end(part));
                let in_turn = |open: usize| match loose.last() {
                    Some(&(last, before)) => last <= class || reaches[before].meets(&reaches[open]),
                    None => true,
                };
                let fits = may.is_some_and(|&open| {
                    in_turn(open) && state.step(&part.operations[open].step, guess) && mark < state.mark()
                });
                let next = if may.is_some() && guess + 1 < *guesses {
                    Cursor::May { class, guess: guess + 1 }
                } else {
                    Cursor::May { class: class + 1, guess: 0 }
                };
                (fits, cursor, next)
            }
            Cursor::May { .. } => {
                let Some(last) = order.pop() else { return Found::None };
                state.back(last.mark);
                match last.what {
                    Cursor::Must(node) => {
                        list.put_back(node);
                        state.placed(&part.operations[List::operation(node)].step, false);
                        placed ^= scatter(List::operation(node) as u64, 1);
                    }
                    Cursor::May { class, .. } => {
                        classes[class].used -= 1;
                        let open = classes[class].members[classes[class].used];
                        placed ^= scatter(open as u64, 1);
                    }
                }
                cursor = last.next;
                continue;
            }
        };
        if !fits {
            cursor = next;
            continue;
        }
        let operation = match what {
            Cursor::Must(node) => List::operation(node),
            Cursor::May { class, .. } => classes[class].members[classes[class].used],
        };
        let now = placed ^ scatter(operation as u64, 1);
        let mut configuration = now ^ state.hash().rotate_left(64);
        let mut still: Vec<(usize, usize)> = Vec::new();
        if let Cursor::May { class, .. } = what {
            // The loose operations also decide what may follow.
            still.extend(loose.iter().filter(|&&(_, open)| !reaches[open].meets(&reaches[operation])));
            still.push((class, operation));
            configuration = still.iter().fold(configuration, |all, &(_, open)| all ^ scatter(open as u64, 2));
            configuration ^= scatter(class as u64, 3);
        }
        if !seen.insert(configuration) {
            state.back(mark);
            cursor = next;
            continue;
        }
        placed = now;
        match what {
            Cursor::Must(node) => {
                list.take_out(node);
                state.placed(&part.operations[operation].step, true);
            }
            Cursor::May { class, .. } => classes[class].used += 1,
        }
        order.push(Placed { what, mark, next, loose: still });
        cursor = list.first();
    }
    Found::Order
}

/// Keys that an operation may write, and keys that it reads or writes; ascending.
#[derive(Default)]
struct Reach {
    writes: Vec<Key>,
    touches: Vec<Key>,
}

impl Reach {
    fn of(step: &Step) -> Reach {
        let mut reach = Reach::default();
        reach.add(step);
        for keys in [&mut reach.writes, &mut reach.touches] {
            keys.sort_unstable();
            keys.dedup();
        }
        reach
    }

    fn add(&mut self, step: &Step) {
        match step {
            Step::Put(key, _) => {
                self.writes.push(*key);
                self.touches.push(*key);
            }
            Step::Delete(keys, _) => {
                self.writes.extend(keys);
                self.touches.extend(keys);
            }
            Step::Read(told) => self.touches.extend(told.iter().map(|(key, _)| key)),
            Step::Count(keys, _) => self.touches.extend(keys),
            Step::Txn(txn) => {
                self.touches.extend(txn.compare.iter().map(|condition| condition.key));
                txn.then.iter().chain(&txn.otherwise).for_each(|step| self.add(step));
            }
            Step::Nothing => {}
        }
    }

    /// Whether the two conflict: their order makes a difference.
    fn meets(&self, other: &Reach) -> bool {
        share(&self.writes, &other.touches) || share(&self.touches, &other.writes)
    }
}

fn share(a: &[Key], b: &[Key]) -> bool {
    let (few, many) = if a.len() < b.len() { (a, b) } else { (b, a) };
    few.iter().any(|key| many.binary_search(key).is_ok())
}

fn classes(part: &Part) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    let mut class_of: HashMap<&Step, usize> = HashMap::new();
    for (number, operation) in part.operations.iter().enumerate() {
        if operation.ended.is_some() {
            continue;
        }
        let class = *class_of.entry(&operation.step).or_insert_with(|| {
            let guesses = 1 << transactions(&operation.step).min(GUESSES_MAX);
            classes.push(Class { members: Vec::new(), used: 0, guesses });
            classes.len() - 1
        });
        classes[class].members.push(number);
    }
    classes
}

fn transactions(step: &Step) -> u32 {
    match step {
        Step::Txn(txn) => 1 + txn.then.iter().chain(&txn.otherwise).map(transactions).sum::<u32>(),
        _ => 0,
    }
}

/// Invocations and ends of the unplaced operations, in time; linked, so that any can be removed and put back.
///
/// Node 0 is both ends of the list; operation `n` has its invocation at `2n + 1` and its end at `2n + 2`.
struct List {
    next: Vec<usize>,
    previous: Vec<usize>,
}

impl List {
    fn of(part: &Part) -> List {
        let mut events: Vec<(usize, usize)> = Vec::new();
        for (number, operation) in part.operations.iter().enumerate() {
            if let Some(ended) = operation.ended {
                events.push((operation.invoked, 2 * number + 1));
                events.push((ended, 2 * number + 2));
            }
        }
        events.sort_unstable();
        let size = 2 * part.operations.len() + 1;
        let mut list = List { next: vec![0; size], previous: vec![0; size] };
        let mut last = 0;
        for (_, node) in events {
            list.next[last] = node;
            list.previous[node] = last;
            last = node;
        }
        list.next[last] = 0;
        list.previous[0] = last;
        list
    }

    fn operation(node: usize) -> usize {
        (node - 1) / 2
    }

    fn is_end(node: usize) -> bool {
        node.is_multiple_of(2)
    }

    fn is_empty(&self) -> bool {
        self.next[0] == 0
    }

    fn first(&self) -> Cursor {
        Cursor::Must(self.next[0])
    }

    fn after(&self, node: usize) -> usize {
        self.next[node]
    }

    /// The first end of an unplaced operation.
    fn first_end(&self, part: &Part) -> usize {
        let mut node = self.next[0];
        while !List::is_end(node) {
            node = self.next[node];
        }
        if node == 0 {
            usize::MAX
        } else {
            part.operations[List::operation(node)].ended.unwrap_or(usize::MAX)
        }
    }

    fn take_out(&mut self, node: usize) {
        for node in [node, node + 1] {
            let (previous, next) = (self.previous[node], self.next[node]);
            self.next[previous] = next;
            self.previous[next] = previous;
        }
    }

    /// Puts the last removed operation back.
    fn put_back(&mut self, node: usize) {
        for node in [node + 1, node] {
            let (previous, next) = (self.previous[node], self.next[node]);
            self.next[previous] = node;
            self.previous[next] = node;
        }
    }
}

/// Configurations are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u128(&mut self, configuration: u128) {
        self.0 = configuration as u64 ^ (configuration >> 64) as u64;
    }
}
