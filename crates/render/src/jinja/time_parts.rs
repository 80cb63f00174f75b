//! Parts of dates in data, as in Python: times, time zones, durations, ISO week dates.
//!
//! Not here: dates themselves (`dates`).

use std::fmt::{self, Write as _};
use std::sync::Arc;

use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, from_args};
use minijinja::{Error, State, Value};

use super::templates::open_error;

/// A part of a date as shown inside a list.
pub(super) fn repr(value: &Value) -> Option<String> {
    let clock = value.downcast_object_ref::<Clock>();
    let clock = clock.map(|clock| format!("datetime.time({})", clock.parts()));
    let zone = || value.downcast_object_ref::<Zone>().map(|zone| zone.shown());
    let span = || value.downcast_object_ref::<Span>().map(|span| span.shown());
    let week = || value.downcast_object_ref::<IsoDate>();
    let week = || week().map(|week| week.shown());
    clock.or_else(zone).or_else(span).or_else(week)
}

pub(super) fn no_method(what: &str, name: &str) -> Error {
    open_error(&format!("a {what} has no method `{name}` here"))
}

/// A time with the fraction of its second, if there is one.
pub(super) fn with_fraction(time: Time) -> String {
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    let whole = format!("{hour:02}:{minute:02}:{second:02}");
    match time.subsec_nanosecond() / 1000 {
        0 => whole,
        micros => format!("{whole}.{micros:06}"),
    }
}

/// A time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    time: Time,
    offset: Option<Offset>,
}

impl Clock {
    pub(super) fn of(time: Time, offset: Option<Offset>) -> Self {
        Self { time, offset }
    }

    /// The ISO form, with the precision of `timespec`.
    pub(super) fn iso(&self, spec: Option<&str>) -> Result<String, Error> {
        let time = self.time;
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());
        let micros = time.subsec_nanosecond() / 1000;
        let text = match spec.unwrap_or("auto") {
            "auto" => with_fraction(time),
            "hours" => format!("{hour:02}"),
            "minutes" => format!("{hour:02}:{minute:02}"),
            "seconds" => format!("{hour:02}:{minute:02}:{second:02}"),
            "milliseconds" => {
                let millis = micros / 1000;
                format!("{hour:02}:{minute:02}:{second:02}.{millis:03}")
            }
            "microseconds" => format!("{hour:02}:{minute:02}:{second:02}.{micros:06}"),
            _ => return Err(open_error("there is no such `timespec`")),
        };
        let zone = self.offset.map(|offset| Zone(offset).shift(":"));
        Ok(text + &zone.unwrap_or_default())
    }

    /// The arguments in Python's `repr`; trailing zeros are left out.
    pub(super) fn parts(&self) -> String {
        let time = self.time;
        let micros = time.subsec_nanosecond() / 1000;
        let mut text = format!("{}, {}", time.hour(), time.minute());
        if time.second() != 0 || micros != 0 {
            let _ = write!(text, ", {}", time.second());
        }
        if micros != 0 {
            let _ = write!(text, ", {micros}");
        }
        if let Some(offset) = self.offset {
            let _ = write!(text, ", tzinfo={}", Zone(offset).shown());
        }
        text
    }
}

impl Object for Clock {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "hour" => Some(Value::from(self.time.hour())),
            "minute" => Some(Value::from(self.time.minute())),
            "second" => Some(Value::from(self.time.second())),
            "microsecond" => Some(Value::from(self.time.subsec_nanosecond() / 1000)),
            _ => None,
        }
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        name: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        match name {
            "isoformat" => {
                let (spec, named): (Option<&str>, Kwargs) = from_args(args)?;
                let spec = spec.or(named.get("timespec")?);
                named.assert_all_used()?;
                self.iso(spec).map(Value::from)
            }
            "strftime" => {
                let (format,): (&str,) = from_args(args)?;
                let moment = super::dates::DateOrDateTime::of_time(self.time, self.offset);
                moment.strftime(format).map(Value::from)
            }
            _ => Err(no_method("time", name)),
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iso(None).unwrap_or_default())
    }
}

/// A UTC offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zone(pub(super) Offset);

impl Zone {
    /// As `+02:00`, with or without the colon.
    pub(super) fn shift(self, colon: &str) -> String {
        let seconds = self.0.seconds();
        let sign = if seconds < 0 { '-' } else { '+' };
        let minutes = seconds.abs() / 60;
        format!("{sign}{:02}{colon}{:02}", minutes / 60, minutes % 60)
    }

    pub(super) fn name(self) -> String {
        match self.0.seconds() {
            0 => "UTC".to_owned(),
            _ => format!("UTC{}", self.shift(":")),
        }
    }

    fn shown(self) -> String {
        match self.0.seconds() {
            0 => "datetime.timezone.utc".to_owned(),
            _ => format!("datetime.timezone({})", Span::of(self.0).shown()),
        }
    }
}

impl Object for Zone {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// A duration in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span(i32);

const DAY: i32 = 24 * 60 * 60;

impl Span {
    pub(super) fn of(offset: Offset) -> Self {
        Self(offset.seconds())
    }

    /// Only the days may be negative.
    fn days_and_seconds(self) -> (i32, i32) {
        (self.0.div_euclid(DAY), self.0.rem_euclid(DAY))
    }

    fn shown(self) -> String {
        let inner = match self.days_and_seconds() {
            (0, 0) => "0".to_owned(),
            (0, seconds) => format!("seconds={seconds}"),
            (days, 0) => format!("days={days}"),
            (days, seconds) => format!("days={days}, seconds={seconds}"),
        };
        format!("datetime.timedelta({inner})")
    }
}

impl Object for Span {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let (days, seconds) = self.days_and_seconds();
        match key.as_str()? {
            "days" => Some(Value::from(days)),
            "seconds" => Some(Value::from(seconds)),
            "microseconds" => Some(Value::from(0)),
            _ => None,
        }
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        name: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let () = from_args(args)?;
        match name {
            "total_seconds" => Ok(Value::from(f64::from(self.0))),
            _ => Err(no_method("span of time", name)),
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, seconds) = self.days_and_seconds();
        match days {
            0 => {}
            1 | -1 => write!(f, "{days} day, ")?,
            _ => write!(f, "{days} days, ")?,
        }
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        write!(f, "{}:{:02}:{seconds:02}", minutes / 60, minutes % 60)
    }
}

/// An ISO week date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IsoDate {
    year: i16,
    week: i8,
    weekday: i8,
}

impl IsoDate {
    pub(super) fn of(date: Date) -> Self {
        let date = date.iso_week_date();
        Self {
            year: date.year(),
            week: date.week(),
            weekday: date.weekday().to_monday_one_offset(),
        }
    }

    fn shown(self) -> String {
        let Self {
            year,
            week,
            weekday,
        } = self;
        format!("datetime.IsoCalendarDate(year={year}, week={week}, weekday={weekday})")
    }
}

impl Object for IsoDate {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match (key.as_str(), key.as_usize()) {
            (Some("year"), _) | (None, Some(0)) => Some(Value::from(self.year)),
            (Some("week"), _) | (None, Some(1)) => Some(Value::from(self.week)),
            (Some("weekday"), _) | (None, Some(2)) => Some(Value::from(self.weekday)),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(3)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}
