//! Comments in lists, for rules where comments decide what is encrypted. An encrypted comment becomes a value of
//! the list: the official tool applies the preceding comment to it, and leaves the value after it as it is.

use regex::Regex;

use super::super::tree::{Element, Entry, Map, Node};
use super::ValueError;

/// Refuses documents that could be encrypted but not decrypted again.
pub(super) fn check(map: &Map, regex: &Regex) -> Result<(), ValueError> {
    let path = &mut Vec::new();
    ListCheck { regex, path }.map(map, false)
}

struct ListCheck<'a> {
    regex: &'a Regex,
    path: &'a mut Vec<String>,
}

impl ListCheck<'_> {
    /// `decided`: a comment of an enclosing map or list already applies to all of this one.
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
