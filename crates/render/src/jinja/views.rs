//! Ranges, and the keys, values and items of maps: iterated like lists, and shown as in Python.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr};
use minijinja::{Environment, Error, Value};

use super::repr;
use super::templates::open_error;

/// The limit of the engine's own ranges.
const MOST: usize = 100_000;

pub(super) fn add_to(env: &mut Environment<'static>) {
    env.add_function("range", range);
}

/// The result of `keys`, `values` and `items` of a map.
pub(super) fn of_map(method: &str, items: &Value) -> Result<Value, Error> {
    let items = items.try_iter()?.collect();
    let name = format!("dict_{method}");
    Ok(Value::from_object(View { name, items }))
}

/// The Python form, if it is one of these types.
pub(super) fn shown(value: &Value) -> Option<String> {
    let view = value.downcast_object_ref::<View>().map(View::shown);
    view.or_else(|| value.downcast_object_ref::<Range>().map(Range::shown))
}

fn range(first: i64, second: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let (start, stop) = match second {
        Some(stop) => (first, stop),
        None => (0, first),
    };
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(open_error("a step of `range` is not 0"));
    }
    let range = Range { start, stop, step };
    match range.length() {
        Some(length) if length <= MOST => Ok(Value::from_object(range)),
        _ => Err(open_error("this `range` has too many numbers")),
    }
}

#[derive(Debug)]
struct View {
    name: String,
    items: Vec<Value>,
}

impl View {
    fn shown(&self) -> String {
        let items = repr::repr(&Value::from(self.items.clone()));
        format!("{}({})", self.name, items.unwrap_or_default())
    }
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.items.clone())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

#[derive(Debug)]
struct Range {
    start: i64,
    stop: i64,
    step: i64,
}

impl Range {
    fn length(&self) -> Option<usize> {
        let way = i128::from(self.stop) - i128::from(self.start);
        let step = i128::from(self.step);
        let steps = (way + step - step.signum()) / step;
        usize::try_from(steps.max(0)).ok()
    }

    fn shown(&self) -> String {
        let Self { start, stop, step } = self;
        match step {
            1 => format!("range({start}, {stop})"),
            step => format!("range({start}, {stop}, {step})"),
        }
    }
}

impl Object for Range {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = key.as_usize().filter(|at| Some(*at) < self.length())?;
        let at = i64::try_from(at).ok()?;
        Some(Value::from(self.start + at * self.step))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.length().unwrap_or_default())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}
