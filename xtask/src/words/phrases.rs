//! Phrases in comments, counted for each first folder and held below a ceiling.
//!
//! In:   the lines of files; the ceilings.
//! Out:  the places of each phrase; the phrases above their ceiling; ceilings lowered to what is there.
//! Rule: a phrase is a sequence of whole words, in any case, and may go on in the next line of its comment. Some count
//!       only at the beginning of a sentence: a sentence begins with its comment, behind an empty line, at an item of a
//!       list, and behind a full stop, a question mark or an exclamation mark.
//! Knows nothing of: code.

use crate::house::lines::Line;
use crate::shell::Failure;
use std::collections::BTreeMap;

/// A phrase that comments are to lose.
struct Phrase {
    /// Its name in the file of ceilings.
    name: &'static str,
    /// Its forms, in lower case.
    forms: &'static [&'static str],
    /// Whether it counts only at the beginning of a sentence.
    is_opening: bool,
    /// The advice to writers.
    instead: &'static str,
}

const PHRASES: &[Phrase] = &[
    Phrase {
        name: "accused",
        forms: &["accuse", "accused", "accuses", "accusing"],
        is_opening: false,
        instead: "write reported",
    },
    Phrase {
        name: "handed over",
        forms: &["hand over", "hands over", "handed over", "handing over", "hand-over", "hand-overs"],
        is_opening: false,
        instead: "write transferred (leadership), or delivered (entries)",
    },
    Phrase {
        name: "likeness",
        forms: &["likeness", "likenesses"],
        is_opening: false,
        instead: "write name clash",
    },
    Phrase {
        name: "mended",
        forms: &["mend", "mended", "mends", "mending"],
        is_opening: false,
        instead: "write repaired",
    },
    Phrase {
        name: "the odd one",
        forms: &["the odd one"],
        is_opening: false,
        instead: "write the divergent one",
    },
    Phrase { name: "who", forms: &["who", "whoever"], is_opening: true, instead: "name the subject" },
];

/// Places (`path:line`) by phrase and first folder.
pub type Occurrences = BTreeMap<(&'static str, String), Vec<String>>;

/// Numbers allowed, by phrase and first folder; what is missing is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ceilings(BTreeMap<String, BTreeMap<String, usize>>);

impl Ceilings {
    /// Reads the file of ceilings.
    pub fn parse(text: &str) -> Result<Ceilings, Failure> {
        let wrong = |what: String| Failure::new(format!("{}: {what}", super::CEILINGS));
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
        let mut ceilings = Ceilings::default();
        for (name, rooms) in &table {
            if !PHRASES.iter().any(|phrase| phrase.name == name) {
                return Err(wrong(format!("there is no phrase `{name}`")));
            }
            let rooms = rooms.as_table().ok_or_else(|| wrong(format!("[{name}] is no table")))?;
            for (room, count) in rooms {
                let count = count.as_integer().and_then(|count| usize::try_from(count).ok());
                let count = count.ok_or_else(|| wrong(format!("[{name}] {room} is no number")))?;
                ceilings.0.entry(name.clone()).or_default().insert(room.clone(), count);
            }
        }
        Ok(ceilings)
    }

    /// The number allowed.
    pub fn of(&self, name: &str, room: &str) -> usize {
        self.0.get(name).and_then(|rooms| rooms.get(room)).copied().unwrap_or(0)
    }

    /// Each ceiling, or the number that is there if that is lower; those of 0 are left out.
    pub fn lowered(&self, found: &Occurrences) -> Ceilings {
        let mut lowered = Ceilings::default();
        for ((name, room), places) in found {
            let count = places.len().min(self.of(name, room));
            if 0 < count {
                lowered.0.entry(name.to_string()).or_default().insert(room.clone(), count);
            }
        }
        lowered
    }

    /// The file of ceilings.
    pub fn text(&self) -> String {
        let mut text = "# Retired phrases that are still in comments, by first folder. These numbers may only fall: the \
                        stage `words`\n# fails above one, and `cargo xtask fix` lowers those that are too high.\n"
            .to_string();
        for (name, rooms) in &self.0 {
            text += &format!("\n[{name:?}]\n");
            text.extend(rooms.iter().map(|(room, count)| format!("{room} = {count}\n")));
        }
        text
    }
}

/// The advice for a phrase.
pub fn instead(name: &str) -> &'static str {
    PHRASES.iter().find(|phrase| phrase.name == name).map_or("", |phrase| phrase.instead)
}

/// Phrases above their ceiling: the phrase, the folder, the places.
pub fn above<'s>(found: &'s Occurrences, ceilings: &Ceilings) -> Vec<(&'static str, &'s str, &'s [String])> {
    let is_above = |name: &str, room: &str, count: usize| ceilings.of(name, room) < count;
    let all = found.iter().filter(|((name, room), places)| is_above(name, room, places.len()));
    all.map(|((name, room), places)| (*name, room.as_str(), places.as_slice())).collect()
}

/// One word of a comment.
struct Word {
    line: usize,
    text: String,
    opens: bool,
}

/// Adds the phrases in the comments of one file.
pub fn collect(path: &str, lines: &[Line], found: &mut Occurrences) {
    let room = path.split('/').next().unwrap_or(path);
    let words = words(lines);
    for phrase in PHRASES {
        let here = (0..words.len()).filter(|&at| {
            (words[at].opens || !phrase.is_opening)
                && phrase.forms.iter().any(|form| begins(&words[at..], form))
        });
        let places: Vec<String> = here.map(|at| format!("{path}:{}", words[at].line)).collect();
        if !places.is_empty() {
            found.entry((phrase.name, room.to_string())).or_default().extend(places);
        }
    }
}

/// Whether these words begin with a form of a phrase, within one sentence.
fn begins(words: &[Word], form: &str) -> bool {
    let is_word = |(place, wanted): (usize, &str)| {
        words.get(place).is_some_and(|word| word.text == wanted && (place == 0 || !word.opens))
    };
    form.split(' ').enumerate().all(is_word)
}

/// The words of all comments, in lower case.
fn words(lines: &[Line]) -> Vec<Word> {
    let mut words = Vec::new();
    let mut opens = true;
    for (place, line) in lines.iter().enumerate() {
        let comment = line.comment.as_deref().unwrap_or("");
        // A comment behind code goes on from no other one; an empty line or an item of a list begins anew.
        let is_item = ["- ", "* "].iter().any(|bullet| comment.starts_with(bullet));
        opens |= comment.is_empty() || line.is_code() || is_item;
        let mut text = String::new();
        let mut is_end = false;
        for c in comment.chars().chain([' ']) {
            if c.is_alphanumeric() || "-_'".contains(c) && !text.is_empty() {
                text.push(c);
                is_end = false;
                continue;
            }
            if !text.is_empty() {
                words.push(Word { line: place + 1, text: text.to_lowercase(), opens });
                text.clear();
                opens = false;
            }
            // The sentence ends at a stop with a space behind it, brackets and quotes between them aside.
            match c {
                '.' | '?' | '!' => is_end = true,
                ' ' => opens |= std::mem::take(&mut is_end),
                _ => {}
            }
        }
        opens |= line.is_code();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::lines::lines;

    fn found(text: &str) -> Vec<(&'static str, String, Vec<String>)> {
        let mut found = Occurrences::new();
        collect("core/a.rs", &lines(text), &mut found);
        found.into_iter().map(|((name, room), places)| (name, room, places)).collect()
    }

    fn count(text: &str, name: &str) -> usize {
        found(text).iter().filter(|(other, ..)| *other == name).map(|(_, _, places)| places.len()).sum()
    }

    #[test]
    fn phrases_are_whole_words_and_may_go_on_in_the_next_line() {
        assert_eq!(count("// It is handed\n// over, then hand-over; Hands over.\n", "handed over"), 3);
        assert_eq!(count("// On the one hand. Over all.\n", "handed over"), 0);
        assert_eq!(count("/// The ODD\n/// one is mended. Recommended: amend.\n", "the odd one"), 1);
        assert_eq!(count("/// The odd one is mended. Recommended: amend.\n", "mended"), 1);
        assert_eq!(
            found("fn a() {} // accused\n"),
            [("accused", "core".to_string(), vec!["core/a.rs:1".to_string()])]
        );
    }

    #[test]
    fn code_and_strings_have_no_phrases() {
        assert!(found("let likeness = \"accused\"; fn mend() {}\n").is_empty());
    }

    #[test]
    fn who_counts_at_the_beginning_of_a_sentence() {
        let cases = [
            ("// Who asks.\n", 1),
            ("// who asks is\n// who is asked\n", 1),
            ("// The one who asks. Whoever asks (twice.) Who is it?\n", 2),
            ("// a.who whose (who) Rule: who\n", 0),
            ("// Of those\n//\n// who asks\n", 1),
            ("// Of those:\n// - who asks\n", 1),
            ("let a = 1; // who asks\n// who answers\n", 2),
            ("// Of e.g. one who asks\n", 0),
        ];
        for (text, wanted) in cases {
            assert_eq!(count(text, "who"), wanted, "{text}");
        }
    }

    #[test]
    fn ceilings_fall_and_never_rise() {
        let ceilings =
            Ceilings::parse("[who]\ncore = 3\nshell = 1\n[\"handed over\"]\ncore = 1\n").expect("valid");
        let places = |count: usize| vec!["core/a.rs:1".to_string(); count];
        let found = Occurrences::from([
            (("who", "core".to_string()), places(2)),
            (("who", "proof".to_string()), places(1)),
            (("handed over", "core".to_string()), places(4)),
        ]);
        let above: Vec<_> = above(&found, &ceilings).iter().map(|(name, room, _)| (*name, *room)).collect();
        assert_eq!(above, [("handed over", "core"), ("who", "proof")]);
        let lowered = ceilings.lowered(&found);
        assert_eq!((lowered.of("who", "core"), lowered.of("who", "shell")), (2, 0));
        assert_eq!((lowered.of("who", "proof"), lowered.of("handed over", "core")), (0, 1));
        assert_eq!(Ceilings::parse(&lowered.text()).expect("valid"), lowered);
        assert!(Ceilings::parse("[nobody]\ncore = 1\n").is_err());
    }
}
