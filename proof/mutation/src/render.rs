//! Render: writes the mutants of one file beside its right code, with a choice at run time.
//!
//! ```text
//!  right:   a < b && c
//!  copy:    (if kattu_plant::is(2) { a < b || c } else { (if kattu_plant::is(1) { a <= b } else { a < b }) && c })
//! ```
//! In:   the text of a file, mutants with their numbers.
//! Out:  the text of the copy, and where each piece of it comes from, so that a complaint of the compiler about the copy
//!       tells which mutant it is about.
//! Rule: ranges of mutants are equal, apart, or one within the other: they are nodes of a tree of syntax.
//! Knows nothing of: cargo, the meaning of code.

use crate::operators::{Mutant, Shape};
use std::ops::Range;

/// The copy of a file.
#[derive(Debug, Default)]
pub struct Rendered {
    /// Its text.
    pub text: String,
    /// For each mutant: its number, the bytes of its wrong code, and the bytes of the whole choice.
    choices: Vec<(usize, Range<usize>, Range<usize>)>,
    /// Bytes that were copied: where they stand in the copy, and where they stood.
    copied: Vec<(Range<usize>, usize)>,
}

impl Rendered {
    /// Writes a file with these mutants.
    #[must_use]
    pub fn new(text: &str, mutants: &[(usize, &Mutant)]) -> Rendered {
        let mut sorted: Vec<(usize, &Mutant)> = mutants.to_vec();
        // Outer ranges first. A beginning is empty: it comes before what stands at its place.
        sorted.sort_by_key(|(number, mutant)| {
            let is_later = mutant.shape != Shape::Beginning;
            let end = std::cmp::Reverse(mutant.range.end);
            let is_expression = mutant.shape == Shape::Expression;
            (mutant.range.start, is_later, end, is_expression, *number)
        });
        let mut rendered = Rendered::default();
        rendered.range(text, 0..text.len(), &sorted);
        rendered
    }

    fn range(&mut self, text: &str, range: Range<usize>, mutants: &[(usize, &Mutant)]) {
        let (mut at, mut rest) = (range.start, mutants);
        while let Some((_, first)) = rest.first() {
            let is_same =
                |other: &&(usize, &Mutant)| other.1.range == first.range && other.1.shape == first.shape;
            let same = rest.iter().take_while(is_same).count();
            let is_within = |other: &&(usize, &Mutant)| {
                first.shape != Shape::Beginning && other.1.range.end <= first.range.end
            };
            let within = rest[same..].iter().take_while(is_within).count();
            self.copy(text, at..first.range.start);
            let start = self.text.len();
            if first.shape == Shape::Expression {
                self.text.push('(');
            }
            let listed = self.choices.len();
            for (place, (number, mutant)) in rest[..same].iter().enumerate() {
                let joined = if place > 0 && first.shape != Shape::Beginning { " else " } else { " " };
                self.text.push_str(&format!("{joined}if kattu_plant::is({number}) {{ "));
                let begin = self.text.len();
                self.text.push_str(&mutant.instead);
                self.choices.push((*number, begin..self.text.len(), start..start));
                self.text.push_str(" }");
            }
            if first.shape != Shape::Beginning {
                self.text.push_str(" else { ");
                self.range(text, first.range.clone(), &rest[same..same + within]);
                self.text.push_str(" }");
            }
            if first.shape == Shape::Expression {
                self.text.push(')');
            }
            let end = self.text.len();
            for (_, _, whole) in &mut self.choices[listed..listed + same] {
                whole.end = end;
            }
            at = first.range.end;
            rest = &rest[same + within..];
        }
        self.copy(text, at..range.end);
    }

    fn copy(&mut self, text: &str, range: Range<usize>) {
        let begin = self.text.len();
        self.text.push_str(&text[range.clone()]);
        self.copied.push((begin..self.text.len(), range.start));
    }

    /// The mutants whose wrong code holds one of these bytes.
    #[must_use]
    pub fn wrong_at(&self, bytes: &Range<usize>) -> Vec<usize> {
        let holds = |range: &Range<usize>| range.start <= bytes.start && bytes.end <= range.end;
        let found = self.choices.iter().filter(|(_, wrong, _)| holds(wrong));
        found.map(|(number, _, _)| *number).collect()
    }

    /// The mutants of the smallest choice that holds these bytes.
    #[must_use]
    pub fn choice_at(&self, bytes: &Range<usize>) -> Vec<usize> {
        let holds = |range: &Range<usize>| range.start <= bytes.start && bytes.end <= range.end;
        let around = self.choices.iter().filter(|(_, _, whole)| holds(whole));
        let smallest = around.clone().map(|(_, _, whole)| whole.len()).min();
        around.filter(|(_, _, whole)| Some(whole.len()) == smallest).map(|(number, _, _)| *number).collect()
    }

    /// The byte of the right code from which this byte was copied, or the nearest one before it.
    #[must_use]
    pub fn origin(&self, byte: usize) -> usize {
        let before = self.copied.iter().rev().find(|(here, _)| here.start <= byte);
        before.map_or(0, |(here, origin)| origin + (byte - here.start).min(here.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::{Kind, mutants};

    /// The copy with the mutants of these kinds, without what is around the function's body.
    fn rendered(body: &str, kinds: &[Kind]) -> (String, Rendered) {
        let text = format!("fn f() -> bool {{ {body} }}");
        let all = mutants("a.rs", &text).expect("Rust");
        let chosen: Vec<(usize, &Mutant)> =
            all.iter().filter(|mutant| kinds.contains(&mutant.kind)).enumerate().collect();
        let rendered = Rendered::new(&text, &chosen);
        (rendered.text[16..rendered.text.len() - 2].trim().to_string(), rendered)
    }

    #[test]
    fn choices_stand_in_each_other() {
        let (body, _) = rendered("a < b && c", &[Kind::Relation, Kind::Boolean]);
        assert_eq!(
            body,
            "( if kattu_plant::is(0) { a < b || c } else { \
             ( if kattu_plant::is(1) { a <= b } else { a < b }) && c })"
        );
    }

    #[test]
    fn statements_and_beginnings_have_no_brackets() {
        assert_eq!(rendered("go();", &[Kind::Statement]).0, "if kattu_plant::is(0) {  } else { go(); }");
        assert_eq!(
            rendered("x", &[Kind::Result]).0,
            "if kattu_plant::is(0) {  return true; } if kattu_plant::is(1) {  return false; } x"
        );
        assert_eq!(
            rendered("go(1);", &[Kind::Statement, Kind::Constant]).0,
            "if kattu_plant::is(0) {  } else { go(( if kattu_plant::is(1) { 2 } else if kattu_plant::is(2) { 0 } \
             else { 1 })); }"
        );
    }

    #[test]
    fn every_copy_is_rust() {
        let text = "impl A { fn f(&mut self) -> Option<u8> { if a < 1 && !b { self.go(x + 1)?; return None; } \
                    match c { D if e => self.y += 1, _ => f() } for g in h { continue; } Some(2) } }";
        let all = mutants("a.rs", text).expect("Rust");
        let numbered: Vec<(usize, &Mutant)> = all.iter().enumerate().collect();
        let rendered = Rendered::new(text, &numbered);
        assert!(syn::parse_file(&rendered.text).is_ok(), "{}", rendered.text);
        for number in 0..all.len() {
            assert_eq!(rendered.text.matches(&format!("is({number})")).count(), 1);
        }
    }

    #[test]
    fn a_place_in_the_copy_tells_its_mutant() {
        let (_, rendered) = rendered("a < b && c", &[Kind::Relation, Kind::Boolean]);
        let at = |part: &str| {
            let start = rendered.text.find(part).expect("it is there");
            start..start + part.len()
        };
        assert_eq!(rendered.wrong_at(&at("a <= b")), [1]);
        assert_eq!(rendered.wrong_at(&at("c })")), Vec::<usize>::new());
        assert_eq!(rendered.choice_at(&at("else { a < b }")), [1]);
        assert_eq!(rendered.choice_at(&at("&& c })")), [0]);
        assert_eq!(rendered.origin(at("&& c })").start), "fn f() -> bool { a < b ".len());
    }
}
