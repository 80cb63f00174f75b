//! Filters that compare values: `sort`, `min`, `max`, `unique`, `groupby`, `dictsort`, `selectattr`, `rejectattr`.
//! The placeholder of a secret, or a missing attribute, cannot be compared. So the compared values are searched
//! for them first.

use std::borrow::Cow;
use std::cmp::Ordering;

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters};

use super::templates::open_error;

pub(super) fn add_to(env: &mut Environment<'static>) {
    env.add_filter("sort", sort);
    env.add_filter("min", min);
    env.add_filter("max", max);
    env.add_filter("unique", unique);
    env.add_filter("groupby", groupby);
    env.add_filter("dictsort", dictsort);
    env.add_filter("selectattr", selectattr);
    env.add_filter("rejectattr", rejectattr);
}

fn selectattr(
    state: &mut State<'_, '_>,
    value: Value,
    attribute: Cow<'_, str>,
    test: Option<Cow<'_, str>>,
    args: Rest<ValueOrKwargs>,
) -> Result<Vec<Value>, Error> {
    check_there(state, &value, &attribute, test.as_deref())?;
    filters::selectattr(state, value, attribute, test, args)
}

fn rejectattr(
    state: &mut State<'_, '_>,
    value: Value,
    attribute: Cow<'_, str>,
    test: Option<Cow<'_, str>>,
    args: Rest<ValueOrKwargs>,
) -> Result<Vec<Value>, Error> {
    check_there(state, &value, &attribute, test.as_deref())?;
    filters::rejectattr(state, value, attribute, test, args)
}

/// Tests that accept an undefined value.
const OF_NOTHING: [&str; 13] = [
    "defined",
    "undefined",
    "none",
    "boolean",
    "true",
    "false",
    "integer",
    "float",
    "number",
    "string",
    "mapping",
    "sameas",
    "callable",
];

/// In strict mode, an attribute that some item lacks is an error.
fn check_there(
    state: &State<'_, '_>,
    items: &Value,
    attribute: &str,
    test: Option<&str>,
) -> Result<(), Error> {
    let is_strict = state.undefined_behavior() == UndefinedBehavior::Strict;
    if !is_strict || test.is_some_and(|test| OF_NOTHING.contains(&test)) {
        return Ok(());
    }
    let Ok(mut items) = items.try_iter() else {
        return Ok(()); // the filter itself reports this
    };
    if items.any(|item| attribute_of(&item, attribute).is_undefined()) {
        return Err(open_error(
            "an item has no such attribute; `selectattr(…, \"defined\")` takes those that have it",
        ));
    }
    Ok(())
}

fn sort(state: &State<'_, '_>, value: Value, named: Kwargs) -> Result<Value, Error> {
    check(&value, named.get("attribute")?)?;
    filters::sort(state, value, named)
}

fn min(state: &State<'_, '_>, value: Value, named: Kwargs) -> Result<Value, Error> {
    check(&value, named.get("attribute")?)?;
    filters::min(state, value, named)
}

fn max(state: &State<'_, '_>, value: Value, named: Kwargs) -> Result<Value, Error> {
    check(&value, named.get("attribute")?)?;
    filters::max(state, value, named)
}

fn unique(state: &State<'_, '_>, value: Value, named: Kwargs) -> Result<Value, Error> {
    check(&value, named.get("attribute")?)?;
    filters::unique(state, value, named)
}

fn groupby(value: Value, by: Option<&str>, named: Kwargs) -> Result<Value, Error> {
    let by_name: Option<&str> = named.get("attribute")?;
    check(&value, by.or(by_name))?;
    filters::groupby(value, by, named)
}

/// Raises the error of a withheld secret, if one is compared.
fn check(items: &Value, attribute: Option<&str>) -> Result<(), Error> {
    let Ok(items) = items.try_iter() else {
        return Ok(()); // the filter itself reports this
    };
    for item in items {
        match attribute {
            None => find(&item)?,
            Some(names) => {
                for path in names.split(',') {
                    find(&attribute_of(&item, path.trim()))?;
                }
            }
        }
    }
    Ok(())
}

fn attribute_of(item: &Value, path: &str) -> Value {
    path.split('.').fold(item.clone(), |value, part| {
        if value.kind() == ValueKind::Invalid {
            return value;
        }
        let found = match part.parse::<usize>() {
            Ok(index) => value.get_item_by_index(index),
            Err(_) => value.get_attr(part),
        };
        found.unwrap_or_default()
    })
}

/// Searches a value as deeply as a comparison would.
fn find(value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Invalid => Err(Error::new(ErrorKind::InvalidOperation, value.to_string())),
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.try_for_each(|item| find(&item)),
        ValueKind::Map => value
            .try_iter()?
            .try_for_each(|key| find(&value.get_item(&key).unwrap_or_default())),
        _ => Ok(()),
    }
}

/// `case_sensitive`, `by` and `reverse`, by position or by name, as in Jinja2.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the engine hands arguments over so"
)]
fn dictsort(map: &Value, by_place: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    if map.kind() != ValueKind::Map {
        let problem = "`dictsort` takes a map";
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    let is_true = |index: usize| by_place.get(index).is_some_and(Value::is_true);
    let case_sensitive = named.get::<Option<bool>>("case_sensitive")?;
    let case_sensitive = case_sensitive.unwrap_or_else(|| is_true(0));
    let by = named.get::<Option<&str>>("by")?;
    let by = by.or_else(|| by_place.get(1).and_then(Value::as_str));
    let reverse = named.get::<Option<bool>>("reverse")?;
    let reverse = reverse.unwrap_or_else(|| is_true(2));
    named.assert_all_used()?;
    let at = usize::from(by == Some("value"));
    let mut pairs: Vec<[Value; 2]> = Vec::new();
    for key in map.try_iter()? {
        let value = map.get_item(&key)?;
        pairs.push([key, value]);
    }
    for pair in &pairs {
        find(&pair[at])?;
    }
    let compare = |one: &Value, other: &Value| -> Ordering {
        match (one.as_str(), other.as_str()) {
            (Some(one), Some(other)) if !case_sensitive => {
                one.to_lowercase().cmp(&other.to_lowercase())
            }
            _ => one.cmp(other),
        }
    };
    pairs.sort_by(|one, other| {
        let order = compare(&one[at], &other[at]);
        if reverse { order.reverse() } else { order }
    });
    let pairs = pairs.into_iter();
    let pairs = pairs.map(|[key, value]| Value::from((key, value)));
    Ok(pairs.collect::<Vec<Value>>().into())
}
