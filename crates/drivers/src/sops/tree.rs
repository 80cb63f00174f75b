//! A document as SOPS sees it: ordered maps and lists, comments, and typed values.
//!
//! Not here: any format, any key.

use std::fmt;
use std::mem;

use model::base::secret::Secret;

/// One map per document of the file; only YAML allows several.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Document(pub(super) Vec<Map>);

pub(super) type Map = Vec<Entry>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    Comment(Comment),
    Item(String, Node),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Map(Map),
    List(Vec<Element>),
    Scalar(Scalar),
    /// Never encrypted, and not part of the MAC.
    Null,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Element {
    Comment(Comment),
    Node(Node),
}

/// The text after a `#`, of one line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Comment {
    pub(super) text: Secret,
    /// Whether it is on the line of the value that follows it in the tree.
    pub(super) inline: bool,
}

impl Comment {
    pub(super) fn new(text: impl Into<String>, inline: bool) -> Self {
        Self {
            text: Secret::new(text),
            inline,
        }
    }
}

/// A value in the canonical spelling, which is encrypted and goes into the MAC.
#[derive(Clone, PartialEq)]
pub(super) struct Scalar {
    pub(super) kind: Kind,
    pub(super) text: Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Int,
    Float,
    Bool,
    Time,
}

impl Scalar {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::new(Kind::Text, text)
    }

    pub(super) fn int(value: i64) -> Self {
        Self::new(Kind::Int, value.to_string())
    }

    pub(super) fn float(value: f64) -> Self {
        let text = if value == f64::INFINITY {
            "+Inf".to_owned()
        } else if value == f64::NEG_INFINITY {
            "-Inf".to_owned()
        } else {
            value.to_string()
        };
        Self::new(Kind::Float, text)
    }

    pub(super) fn bool(value: bool) -> Self {
        Self::new(Kind::Bool, if value { "True" } else { "False" })
    }

    pub(super) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: Secret::new(text),
        }
    }

    /// The value as other readers spell it: `true`, not `True`.
    pub(super) fn spoken(&self) -> Secret {
        match self.kind {
            Kind::Bool => Secret::new(self.text.expose().to_ascii_lowercase()),
            Kind::Text | Kind::Int | Kind::Float | Kind::Time => self.text.clone(),
        }
    }
}

/// Hides numbers as well: they are as secret as text.
impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}([secret])", self.kind)
    }
}

/// Everything that may be encrypted.
pub(super) enum Leaf {
    Scalar(Scalar),
    Comment(Comment),
}

/// The position of a walk.
pub(super) struct TreePosition<'a> {
    /// The keys above, without list positions.
    pub(super) path: &'a [String],
    /// For each level, the comments since its last value.
    pub(super) comments: &'a [Vec<Secret>],
}

/// Visits every leaf. A value of a list that was an encrypted comment may become a comment again; in a map, a
/// comment always stays one.
pub(super) fn walk<Er>(
    document: &mut Document,
    visit: &mut impl FnMut(Leaf, TreePosition<'_>) -> Result<Leaf, Er>,
) -> Result<(), Er> {
    for map in &mut document.0 {
        let mut walk = Walk {
            path: Vec::new(),
            comments: Vec::new(),
            visit,
        };
        walk.map(map)?;
    }
    Ok(())
}

struct Walk<'v, V> {
    path: Vec<String>,
    comments: Vec<Vec<Secret>>,
    visit: &'v mut V,
}

impl<V> Walk<'_, V> {
    fn map<Er>(&mut self, map: &mut Map) -> Result<(), Er>
    where
        V: FnMut(Leaf, TreePosition<'_>) -> Result<Leaf, Er>,
    {
        self.comments.push(Vec::new());
        for entry in map {
            match entry {
                Entry::Comment(comment) => {
                    let inline = comment.inline;
                    let text = match self.comment(comment)? {
                        Leaf::Comment(after) => after.text,
                        Leaf::Scalar(after) => after.text,
                    };
                    *comment = Comment { text, inline };
                }
                Entry::Item(key, node) => {
                    self.path.push(key.clone());
                    self.node(node)?;
                    self.path.pop();
                    self.passed();
                }
            }
        }
        self.comments.pop();
        Ok(())
    }

    fn list<Er>(&mut self, list: &mut [Element]) -> Result<(), Er>
    where
        V: FnMut(Leaf, TreePosition<'_>) -> Result<Leaf, Er>,
    {
        self.comments.push(Vec::new());
        for element in list {
            match element {
                Element::Comment(comment) => {
                    *element = match self.comment(comment)? {
                        Leaf::Comment(after) => Element::Comment(after),
                        Leaf::Scalar(after) => Element::Node(Node::Scalar(after)),
                    };
                }
                Element::Node(Node::Scalar(scalar)) => {
                    *element = match self.scalar(scalar)? {
                        // It was a comment before encryption: comments before it apply to the value after it.
                        Leaf::Comment(after) => {
                            self.passes(&after);
                            Element::Comment(after)
                        }
                        Leaf::Scalar(after) => {
                            self.passed();
                            Element::Node(Node::Scalar(after))
                        }
                    };
                }
                Element::Node(node) => {
                    self.node(node)?;
                    self.passed();
                }
            }
        }
        self.comments.pop();
        Ok(())
    }

    fn node<Er>(&mut self, node: &mut Node) -> Result<(), Er>
    where
        V: FnMut(Leaf, TreePosition<'_>) -> Result<Leaf, Er>,
    {
        match node {
            Node::Map(map) => self.map(map),
            Node::List(list) => self.list(list),
            Node::Scalar(scalar) => {
                *scalar = match self.scalar(scalar)? {
                    Leaf::Scalar(after) => after,
                    Leaf::Comment(after) => Scalar::text(after.text.expose()),
                };
                Ok(())
            }
            Node::Null => Ok(()),
        }
    }

    fn scalar<Er>(&mut self, scalar: &mut Scalar) -> Result<Leaf, Er>
    where
        V: FnMut(Leaf, TreePosition<'_>) -> Result<Leaf, Er>,
    {
        let taken = mem::replace(scalar, Scalar::text(""));
        self.visit(Leaf::Scalar(taken))
    }

    fn comment<Er>(&mut self, comment: &mut Comment) -> Result<Leaf, Er>
    where
        V: FnMut(Leaf, TreePosition<'_>) -> Result<Leaf, Er>,
    {
        let taken = mem::replace(comment, Comment::new("", false));
        self.passes(&taken);
        self.visit(Leaf::Comment(taken))
    }

    fn visit<Er>(&mut self, leaf: Leaf) -> Result<Leaf, Er>
    where
        V: FnMut(Leaf, TreePosition<'_>) -> Result<Leaf, Er>,
    {
        let place = TreePosition {
            path: &self.path,
            comments: &self.comments,
        };
        (self.visit)(leaf, place)
    }

    /// Records a comment, which applies to the entries after it.
    fn passes(&mut self, comment: &Comment) {
        if let Some(level) = self.comments.last_mut() {
            level.push(comment.text.clone());
        }
    }

    /// Clears the comments before a value.
    fn passed(&mut self) {
        if let Some(level) = self.comments.last_mut() {
            level.clear();
        }
    }
}

/// An invalid path.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    #[error("no key is given")]
    Empty,
    #[error("a key in it has no name: each dot needs a name before and after it")]
    NoName,
    #[error("quote a key that contains dots, without a backslash: `data.\"tls.crt\"`")]
    Backslash,
    #[error("it has an unclosed quote")]
    OpenQuote,
    #[error("`{at}` is neither a map nor a list, so it has no keys")]
    NotAContainer { at: String },
    #[error("the format only has strings in sections: write `SECTION.NAME`")]
    NoSection,
    #[error("the format only has strings, so it cannot contain a map or a list")]
    OnlyTexts,
    #[error("cannot use the name `{name}` in this format: it would be parsed as something else")]
    Unwritable { name: String },
    #[error("`{at}` is a list: `{step}` is not a position in it")]
    NotAPosition { at: String, step: String },
    #[error("`{at}` has {count} elements: position {step} can be set only as the next one")]
    Beyond {
        at: String,
        step: usize,
        count: usize,
    },
}

/// Splits a path at its dots. A key that contains dots is quoted, as in `data."tls.crt"`, or is matched by the
/// whole rest of the path.
pub(super) fn steps(path: &str) -> Vec<String> {
    let mut steps = vec![String::new()];
    let mut quoted = false;
    for c in path.chars() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => steps.push(String::new()),
            _ => {
                if let Some(last) = steps.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    steps
}

impl Document {
    /// The node at a path; a key with dots is found with or without quotes.
    pub(super) fn find(&self, path: &str) -> Option<&Node> {
        let steps = steps(path);
        self.0.iter().find_map(|map| find_in_map(map, &steps))
    }

    /// Sets a value at a path and creates missing maps. Of several documents, the one that already has the path is
    /// used.
    pub(super) fn put(&mut self, steps: &[String], value: Node) -> Result<(), PathError> {
        if self.0.is_empty() {
            self.0.push(Vec::new());
        }
        let has_it = |map: &Map| find_in_map(map, steps).is_some();
        let document = self.0.iter().position(has_it).unwrap_or(0);
        put_in_map(&mut self.0[document], steps, value, "")
    }
}

/// `<<` of YAML: a map, or a list of maps, whose entries are added to the enclosing map unless it has the same
/// key.
pub(super) fn is_merge(key: &str, node: &Node) -> bool {
    let is_map = |node: &Node| matches!(node, Node::Map(_));
    key == "<<"
        && match node {
            Node::List(list) => list.iter().filter_map(Element::node).all(is_map),
            node => is_map(node),
        }
}

/// The maps that are merged into a map, highest precedence first.
fn merged_maps(map: &Map) -> Vec<&Map> {
    let mut maps = Vec::new();
    for entry in map {
        let Entry::Item(key, node) = entry else {
            continue;
        };
        if !is_merge(key, node) {
            continue;
        }
        match node {
            Node::Map(map) => maps.push(map),
            Node::List(list) => maps.extend(list.iter().filter_map(|it| match it.node() {
                Some(Node::Map(map)) => Some(map),
                Some(Node::List(_) | Node::Scalar(_) | Node::Null) | None => None,
            })),
            Node::Scalar(_) | Node::Null => {}
        }
    }
    maps
}

/// A map with its merged entries, as readers see it.
pub(super) fn merged(map: &Map) -> Map {
    let maps = merged_maps(map);
    let mut all: Map = Vec::with_capacity(map.len());
    for entry in map {
        match entry {
            Entry::Item(key, node) if is_merge(key, node) => {}
            Entry::Item(key, node) => all.push(Entry::Item(key.clone(), merged_node(node))),
            Entry::Comment(_) => all.push(entry.clone()),
        }
    }
    for taken in maps {
        for entry in merged(taken) {
            let Entry::Item(name, _) = &entry else {
                continue;
            };
            let has_it = |it: &Entry| matches!(it, Entry::Item(known, _) if known == name);
            if !all.iter().any(has_it) {
                all.push(entry);
            }
        }
    }
    all
}

pub(super) fn merged_node(node: &Node) -> Node {
    match node {
        Node::Map(map) => Node::Map(merged(map)),
        Node::List(list) => {
            let merge = |element: &Element| match element {
                Element::Node(node) => Element::Node(merged_node(node)),
                Element::Comment(_) => element.clone(),
            };
            Node::List(list.iter().map(merge).collect())
        }
        Node::Scalar(_) | Node::Null => node.clone(),
    }
}

fn find_in_map<'a>(map: &'a Map, steps: &[String]) -> Option<&'a Node> {
    let own = find_own(map, steps);
    own.or_else(|| {
        let mut maps = merged_maps(map).into_iter();
        maps.find_map(|map| find_in_map(map, steps))
    })
}

fn find_own<'a>(map: &'a Map, steps: &[String]) -> Option<&'a Node> {
    (1..=steps.len()).find_map(|taken| {
        let key = steps[..taken].join(".");
        map.iter().find_map(|entry| match entry {
            Entry::Item(name, node) if *name == key => find_in(node, &steps[taken..]),
            Entry::Item(..) | Entry::Comment(_) => None,
        })
    })
}

fn find_in<'a>(node: &'a Node, steps: &[String]) -> Option<&'a Node> {
    let Some((first, rest)) = steps.split_first() else {
        return Some(node);
    };
    match node {
        Node::Map(map) => find_in_map(map, steps),
        Node::List(list) => {
            let position: usize = first.parse().ok()?;
            let node = list.iter().filter_map(Element::node).nth(position)?;
            find_in(node, rest)
        }
        Node::Scalar(_) | Node::Null => None,
    }
}

fn put_in_map(map: &mut Map, steps: &[String], value: Node, above: &str) -> Result<(), PathError> {
    let Some((key, rest)) = steps.split_first() else {
        return Err(PathError::Empty);
    };
    let whole = steps.join(".");
    let found = map.iter_mut().find_map(|entry| {
        let Entry::Item(name, node) = entry else {
            return None;
        };
        // An existing key with dots needs no quotes.
        if *name == whole {
            return Some((node, &rest[rest.len()..]));
        }
        (*name == *key).then_some((node, rest))
    });
    let at = join(above, key);
    if let Some((node, rest)) = found {
        put_in(node, rest, value, &at)
    } else {
        let mut node = Node::Null;
        put_in(&mut node, rest, value, &at)?;
        map.push(Entry::Item(key.clone(), node));
        Ok(())
    }
}

fn put_in(node: &mut Node, steps: &[String], value: Node, at: &str) -> Result<(), PathError> {
    let Some((step, rest)) = steps.split_first() else {
        *node = value;
        return Ok(());
    };
    match node {
        Node::Map(map) => put_in_map(map, steps, value, at),
        Node::List(list) => {
            let position: usize = step.parse().map_err(|_| PathError::NotAPosition {
                at: at.to_owned(),
                step: step.clone(),
            })?;
            let count = list.iter().filter_map(Element::node).count();
            if position > count {
                return Err(PathError::Beyond {
                    at: at.to_owned(),
                    step: position,
                    count,
                });
            }
            if position == count {
                list.push(Element::Node(Node::Null));
            }
            let mut nodes = list.iter_mut().filter_map(Element::node_mut);
            match nodes.nth(position) {
                Some(node) => put_in(node, rest, value, &join(at, step)),
                None => Ok(()),
            }
        }
        Node::Null => {
            let mut map = Vec::new();
            put_in_map(&mut map, steps, value, at)?;
            *node = Node::Map(map);
            Ok(())
        }
        Node::Scalar(_) => Err(PathError::NotAContainer { at: at.to_owned() }),
    }
}

fn join(above: &str, key: &str) -> String {
    if above.is_empty() {
        key.to_owned()
    } else {
        format!("{above}.{key}")
    }
}

impl Element {
    pub(super) fn node(&self) -> Option<&Node> {
        match self {
            Self::Node(node) => Some(node),
            Self::Comment(_) => None,
        }
    }

    fn node_mut(&mut self) -> Option<&mut Node> {
        match self {
            Self::Node(node) => Some(node),
            Self::Comment(_) => None,
        }
    }
}
