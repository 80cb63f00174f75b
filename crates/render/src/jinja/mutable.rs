//! Lists and maps that a template changes: `{% set _ = list.append(x) %}`, `{% do map.update(…) %}`. The engine's
//! own lists and maps are immutable. If a template changes one, every list and map literal becomes one of these
//! types. So does a computed value that is assigned to a name.
//!
//! Data is never changed: all templates share it, in any order and on any thread. A list or map cannot contain
//! itself, since printing it would never end.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use minijinja::machinery::Token;
use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, Rest, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::code::{Edit, Tokens, closed, end, start, statements};
use super::templates::open_error;

/// Methods that change their object.
const OF_LISTS: [&str; 8] = [
    "append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort",
];
const OF_MAPS: [&str; 6] = [
    "update",
    "setdefault",
    "pop",
    "popitem",
    "clear",
    "__setitem__",
];

/// Whether a template may change a list or a map; false positives are allowed.
pub(super) fn may_change(template: &str) -> bool {
    template.match_indices('.').any(|(at, _)| {
        let after = template[at + 1..].trim_start();
        OF_LISTS.iter().chain(&OF_MAPS).any(|name| {
            let rest = after.strip_prefix(name);
            rest.is_some_and(|rest| rest.trim_start().starts_with('('))
        })
    })
}

/// The error for changing an immutable value.
pub(super) fn refusal(value: &Value, method: &str) -> Option<Error> {
    let (what, copy, methods) = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => ("list", "x.copy()", &OF_LISTS[..]),
        ValueKind::Map => ("map", "x.copy()", &OF_MAPS[..]),
        _ => return None,
    };
    methods.contains(&method).then(|| {
        open_error(&format!(
            "`{method}` cannot change this {what}: all templates see the data, so they stay as they are; give a name to a copy first, `{copy}`"
        ))
    })
}

/// `shared` are the lists that all templates see, by address.
pub(super) fn add_to(env: &mut Environment<'static>, shared: HashSet<usize>) {
    env.add_function("__list", |items: Vec<Value>| {
        Value::from_object(List::of(items))
    });
    env.add_function("__map", |map: &Value| -> Result<Value, Error> {
        Ok(Value::from_object(Map::of(pairs(map)?)))
    });
    env.add_function("__own", move |value: Value| -> Result<Value, Error> {
        let is_list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
        let is_shared = address(&value).is_some_and(|address| shared.contains(&address));
        let is_own = value.downcast_object_ref::<List>().is_some();
        // A value without a known length is lazy, and is not iterated before it is used.
        if !is_list || value.is_tuple() || is_shared || is_own || value.len().is_none() {
            return Ok(value);
        }
        Ok(Value::from_object(List::of(value.try_iter()?.collect())))
    });
    env.add_filter("list", |state: &State<'_, '_>, value: Value| {
        let made = minijinja::filters::list(state, value)?;
        Ok::<_, Error>(Value::from_object(List::of(made.try_iter()?.collect())))
    });
    env.add_function("dict", |from: Option<Value>, named: Kwargs| {
        let pairs = given(from, &named)?;
        Ok::<_, Error>(Value::from_object(Map::of(pairs)))
    });
}

/// The lists among the values that all templates see.
pub(super) fn shared(env: &Environment<'_>) -> HashSet<usize> {
    let mut found = HashSet::new();
    let mut left: Vec<Value> = env.globals().map(|(_, value)| value).collect();
    while let Some(value) = left.pop() {
        found.extend(address(&value));
        left.extend(children(&value));
    }
    found
}

fn address(value: &Value) -> Option<usize> {
    let list = value.downcast_object_ref::<Vec<Value>>()?;
    Some(std::ptr::from_ref(list).addr())
}

/// The elements of a list or a map.
fn children(value: &Value) -> Vec<Value> {
    match value.kind() {
        ValueKind::Seq => value.try_iter().map(Iterator::collect).unwrap_or_default(),
        ValueKind::Map => pairs(value)
            .map(|pairs| pairs.into_iter().map(|(_, value)| value).collect())
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn pairs(map: &Value) -> Result<Vec<(Value, Value)>, Error> {
    let pair = |key: Value| Ok((key.clone(), map.get_item(&key)?));
    map.try_iter()?.map(pair).collect()
}

/// The arguments of `dict` and `update`: a map or pairs, and keywords.
pub(super) fn given(from: Option<Value>, named: &Kwargs) -> Result<Vec<(Value, Value)>, Error> {
    let mut given = match from {
        None => Vec::new(),
        Some(from) if from.kind() == ValueKind::Map => pairs(&from)?,
        Some(from) => {
            let pair = |pair: Value| {
                let items: Vec<Value> = pair.try_iter()?.collect();
                match <[Value; 2]>::try_from(items) {
                    Ok([key, value]) => Ok((key, value)),
                    Err(_) => Err(open_error("a map is made of another one, or of pairs")),
                }
            };
            let pairs = from.try_iter()?.map(pair);
            pairs.collect::<Result<Vec<_>, Error>>()?
        }
    };
    for name in named.args() {
        given.push((Value::from(name), named.get(name)?));
    }
    Ok(given)
}

/// A mutable copy of a list or a map.
pub(super) fn copy(value: &Value) -> Result<Value, Error> {
    Ok(match value.kind() {
        ValueKind::Map => Value::from_object(Map::of(pairs(value)?)),
        _ => Value::from_object(List::of(value.try_iter()?.collect())),
    })
}

fn none() -> Value {
    Value::from(())
}

/// Refuses a change that would make a list or a map contain itself.
fn check_apart(this: usize, new: &[Value]) -> Result<(), Error> {
    let own = |value: &Value| {
        let list = value.downcast_object_ref::<List>();
        let map = value.downcast_object_ref::<Map>();
        list.map(List::address).or(map.map(Map::address))
    };
    let mut seen = HashSet::new();
    let mut left = new.to_vec();
    while let Some(value) = left.pop() {
        match own(&value) {
            Some(address) if address == this => {
                return Err(open_error("a list or a map cannot hold itself"));
            }
            Some(address) if !seen.insert(address) => continue,
            _ => {}
        }
        left.extend(children(&value));
    }
    Ok(())
}

thread_local! {
    /// Elements of dropped lists and maps, while they are dropped. They are dropped in a loop, because deep
    /// nesting would overflow the stack.
    static GOING: RefCell<Option<Vec<Vec<Value>>>> = const { RefCell::new(None) };
}

fn let_go(values: Vec<Value>) {
    let mut now = Some(values);
    let is_first = GOING.try_with(|going| {
        let mut going = going.borrow_mut();
        match &mut *going {
            Some(left) => left.extend(now.take()),
            none => *none = Some(Vec::new()),
        }
        now.is_some()
    });
    while let Some(values) = now {
        drop(values);
        let left = GOING.try_with(|going| going.borrow_mut().as_mut()?.pop());
        now = left.ok().flatten();
    }
    if is_first == Ok(true) {
        _ = GOING.try_with(RefCell::take);
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let items = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let_go(std::mem::take(items));
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let map = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let pairs = std::mem::take(&mut map.pairs).into_iter();
        let_go(pairs.map(|(_, value)| value).collect());
    }
}

#[derive(Debug)]
struct List(RwLock<Vec<Value>>);

impl List {
    fn of(items: Vec<Value>) -> Self {
        Self(RwLock::new(items))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn items(&self) -> Vec<Value> {
        let items = self.0.read().unwrap_or_else(PoisonError::into_inner);
        items.clone()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Value>) -> T) -> T {
        let mut items = self.0.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut items)
    }

    fn put(&self, at: usize, new: Vec<Value>) -> Result<Value, Error> {
        check_apart(self.address(), &new)?;
        self.change(|items| {
            let at = at.min(items.len());
            items.splice(at..at, new);
        });
        Ok(none())
    }

    fn pop(&self, at: i64) -> Result<Value, Error> {
        let taken = self.change(|items| {
            let at = place(at, items.len()).filter(|at| *at < items.len())?;
            Some(items.remove(at))
        });
        taken.ok_or_else(|| open_error("`pop` finds nothing there"))
    }
}

/// A list index as in Python: a negative one counts from the end.
fn place(at: i64, length: usize) -> Option<usize> {
    match usize::try_from(at) {
        Ok(at) => Some(at),
        Err(_) => length.checked_sub(usize::try_from(at.unsigned_abs()).ok()?),
    }
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let items = self.0.read().unwrap_or_else(PoisonError::into_inner);
        items.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let list = Arc::clone(self);
        Enumerator::Iter(Box::new(Items { list, at: 0 }))
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        name: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        match name {
            "append" => {
                let (item,): (Value,) = from_args(args)?;
                self.put(usize::MAX, vec![item])
            }
            "extend" => {
                let (more,): (Value,) = from_args(args)?;
                self.put(usize::MAX, more.try_iter()?.collect())
            }
            "insert" => {
                let (at, item): (i64, Value) = from_args(args)?;
                let length = self.items().len();
                self.put(place(at, length).unwrap_or(0), vec![item])
            }
            "pop" => {
                let (at,): (Option<i64>,) = from_args(args)?;
                self.pop(at.unwrap_or(-1))
            }
            "remove" => {
                let (item,): (Value,) = from_args(args)?;
                let at = self.items().iter().position(|own| *own == item);
                let at = at.ok_or_else(|| open_error("`remove` finds no such value"))?;
                self.change(|items| items.remove(at));
                Ok(none())
            }
            "clear" => {
                self.change(Vec::clear);
                Ok(none())
            }
            "reverse" => {
                self.change(|items| items.reverse());
                Ok(none())
            }
            "sort" => {
                let (named,): (Kwargs,) = from_args(args)?;
                let is_down = named.get::<Option<bool>>("reverse")?.unwrap_or(false);
                named.assert_all_used()?;
                let mut items = self.items();
                items.sort_by(|one, other| {
                    let order = one.cmp(other);
                    if is_down { order.reverse() } else { order }
                });
                self.change(|own| *own = items);
                Ok(none())
            }
            "copy" => Ok(Value::from_object(Self::of(self.items()))),
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

/// Iterates over the items, including those added meanwhile.
struct Items {
    list: Arc<List>,
    at: usize,
}

impl Iterator for Items {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let items = self.list.0.read().unwrap_or_else(PoisonError::into_inner);
        let item = items.get(self.at).cloned();
        self.at += usize::from(item.is_some());
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let items = self.list.0.read().unwrap_or_else(PoisonError::into_inner);
        let left = items.len().saturating_sub(self.at);
        (left, Some(left))
    }
}

#[derive(Debug)]
struct Map(RwLock<Pairs>);

/// In insertion order.
#[derive(Debug, Default)]
struct Pairs {
    pairs: Vec<(Value, Value)>,
    places: HashMap<Value, usize>,
}

impl Pairs {
    fn put(&mut self, key: Value, value: Value) {
        if let Some(at) = self.places.get(&key) {
            self.pairs[*at].1 = value;
        } else {
            self.places.insert(key.clone(), self.pairs.len());
            self.pairs.push((key, value));
        }
    }

    fn take(&mut self, key: &Value) -> Option<(Value, Value)> {
        let at = self.places.remove(key)?;
        let taken = self.pairs.remove(at);
        for place in self.places.values_mut().filter(|place| **place > at) {
            *place -= 1;
        }
        Some(taken)
    }
}

impl Map {
    fn of(pairs: Vec<(Value, Value)>) -> Self {
        let mut map = Pairs::default();
        for (key, value) in pairs {
            map.put(key, value);
        }
        Self(RwLock::new(map))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn pairs(&self) -> Vec<(Value, Value)> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        map.pairs.clone()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Pairs) -> T) -> T {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut map)
    }

    fn put(&self, new: Vec<(Value, Value)>) -> Result<(), Error> {
        let values: Vec<Value> = new.iter().map(|(_, value)| value.clone()).collect();
        check_apart(self.address(), &values)?;
        self.change(|map| new.into_iter().for_each(|(key, value)| map.put(key, value)));
        Ok(())
    }

    fn find(&self, key: &Value) -> Option<Value> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(map.pairs[*map.places.get(key)?].1.clone())
    }

    fn update(&self, args: &[Value]) -> Result<Value, Error> {
        let (from, named): (Option<Value>, Kwargs) = from_args(args)?;
        self.put(given(from, &named)?)?;
        Ok(none())
    }
}

impl Object for Map {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.find(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let pairs = self.pairs().into_iter();
        Enumerator::Values(pairs.map(|(key, _)| key).collect())
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        name: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        match name {
            "update" => self.update(args),
            "__setitem__" => {
                let (key, value): (Value, Value) = from_args(args)?;
                self.put(vec![(key, value)])?;
                Ok(none())
            }
            "setdefault" => {
                let (key, value): (Value, Option<Value>) = from_args(args)?;
                if let Some(found) = self.find(&key) {
                    return Ok(found);
                }
                let value = value.unwrap_or_else(none);
                self.put(vec![(key, value.clone())])?;
                Ok(value)
            }
            "pop" => {
                let (key, rest): (Value, Rest<Value>) = from_args(args)?;
                match (self.change(|map| map.take(&key)), rest.first()) {
                    (Some((_, value)), _) => Ok(value),
                    (None, Some(default)) => Ok(default.clone()),
                    (None, None) => Err(open_error("`pop` finds no such key")),
                }
            }
            "popitem" => {
                let last = self.pairs().pop();
                let (key, value) = last.ok_or_else(|| open_error("`popitem` finds nothing"))?;
                self.change(|map| map.take(&key));
                Ok(Value::from((key, value)))
            }
            "clear" => {
                self.change(|map| *map = Pairs::default());
                Ok(none())
            }
            "copy" => Ok(Value::from_object(Self::of(self.pairs()))),
            _ => match self.find(&Value::from(name)) {
                Some(value) => value.call(state, args),
                None => Err(Error::from(ErrorKind::UnknownMethod)),
            },
        }
    }
}

/// The edits of a template.
pub(super) fn edits(tokens: Tokens<'_, '_>) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let word = match token.0 {
            Token::BracketOpen if begins(at.checked_sub(1).map(|at| &tokens[at].0)) => "__list(",
            Token::BraceOpen => "__map(",
            _ => continue,
        };
        if let Some(after) = closed(tokens, at) {
            edits.push(Edit::open(start(token), word));
            edits.push(Edit::close(end(&tokens[after - 1]), ")"));
        }
    }
    for (_, statement) in statements(tokens) {
        if !matches!(statement[0].0, Token::Ident("set")) {
            continue;
        }
        let assign = statement
            .iter()
            .position(|(token, _)| matches!(token, Token::Assign));
        let Some(assign) = assign.filter(|at| at + 1 < statement.len()) else {
            continue;
        };
        // A value that already has a name stays shared with it.
        let is_computed = statement[assign + 1..]
            .iter()
            .any(|(token, _)| matches!(token, Token::Pipe | Token::Plus | Token::ParenOpen));
        if is_computed {
            edits.push(Edit::open(end(&statement[assign]), " __own(("));
            edits.push(Edit::close(end(&statement[statement.len() - 1]), "))"));
        }
    }
    edits
}

/// Whether a bracket after this token starts a list, not an index.
fn begins(before: Option<&Token<'_>>) -> bool {
    match before {
        Some(Token::Ident(word)) => [
            "in", "if", "elif", "else", "and", "or", "not", "include", "import", "from", "do",
        ]
        .contains(word),
        Some(
            Token::Str(_)
            | Token::String(_)
            | Token::ParenClose
            | Token::BracketClose
            | Token::BraceClose,
        ) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::check;
    use super::*;

    #[test]
    fn what_is_written_out_can_be_changed() {
        check(
            "{% set x = [1, {'a': []}] %}{{ x[0] }}",
            "{% set x = __list([1, __map({'a': __list([])})]) %}{{ x[0] }}",
        );
        check(
            "{% for a in [1][0] %}{% set b=a|list+[1]%}{% set c = d.e[0] %}",
            "{% for a in __list([1])[0] %}{% set b= __own((a|list+__list([1])))%}{% set c = d.e[0] %}",
        );
    }

    #[test]
    fn what_is_nested_deeper_than_the_stack_goes_all_the_same() {
        let mut deep = Value::from_object(List::of(Vec::new()));
        for index in 0..500_000 {
            deep = match index % 2 {
                0 => Value::from_object(List::of(vec![deep])),
                _ => Value::from_object(Map::of(vec![(Value::from("k"), deep)])),
            };
        }
        drop(deep);
    }

    #[test]
    fn who_changes_nothing_is_known() {
        assert!(may_change("{% do l . append (1) %}"));
        assert!(!may_change("an appendix. {{ x.pop }} {{ x.updated() }}"));
    }
}
