//! Comments in lists, where comments decide what is encrypted: an encrypted one takes the place of a value, so the
//! official tool takes it for what the comment before it spoke of, and leaves the value behind it as it is.

use regex::Regex;

use super::super::tree::{Element, Entry, Map, Node};
use super::ValueError;

/// Refuses what could be encrypted and not be opened again.
pub(super) fn check(map: &Map, regex: &Regex) -> Result<(), ValueError> {
    let path = &mut Vec::new();
    Look { regex, path }.map(map, false)
}

struct Look<'a> {
    regex: &'a Regex,
    path: &'a mut Vec<String>,
}

impl Look<'_> {
    /// `decided`: by a comment of a map or list around this one, which reaches all of it.
    fn map(&mut self, map: &Map, decided: bool) -> Result<(), ValueError> {
        let mut matched = false;
        for entry in map {
            match entry {
                Entry::Comment(comment) => matched |= self.regex.is_match(comment.text.expose()),
                Entry::Item(key, node) => {
                    self.path.push(key.clone());
                    self.node(node, decided || matched)?;
                    self.path.pop();
                    matched = false;
                }
            }
        }
        Ok(())
    }

    fn list(&mut self, list: &[Element], decided: bool) -> Result<(), ValueError> {
        let (mut matched, mut sealed) = (false, false);
        for element in list {
            match element {
                Element::Comment(comment) => {
                    sealed |= matched;
                    matched |= self.regex.is_match(comment.text.expose());
                }
                Element::Node(node) => {
                    if sealed && !decided && *node != Node::Null {
                        let path = self.path.join(".");
                        return Err(ValueError::Between { path });
                    }
                    self.node(node, decided || matched)?;
                    (matched, sealed) = (false, false);
                }
            }
        }
        Ok(())
    }

    fn node(&mut self, node: &Node, decided: bool) -> Result<(), ValueError> {
        match node {
            Node::Map(map) => self.map(map, decided),
            Node::List(list) => self.list(list, decided),
            Node::Scalar(_) | Node::Null => Ok(()),
        }
    }
}
