//! Dates and times in data, read as by Python's loader and written as by Python.
//!
//! Not supported: anything that depends on the machine's clock or time zone.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::Offset;
use minijinja::value::{DynObject, Kwargs, Object, ObjectRepr, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::templates::open_error;
use super::time_parts::{self, Clock, IsoDate, Span, Zone, no_method, with_fraction};

/// A date, or a date with a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DateOrDateTime {
    date: Date,
    time: Option<Time>,
    offset: Option<Offset>,
}

/// The text has the form of a date or time, but the day or hour does not exist.
#[derive(Debug)]
pub(crate) struct InvalidDate;

/// The date or time in a text, if it has that form.
pub(crate) fn read(text: &str) -> Option<Result<DateOrDateTime, InvalidDate>> {
    let (date, rest) = split(text, 10)
        .filter(|(_, rest)| rest.is_empty())
        .or_else(|| {
            let at = text.find(['T', 't', ' ', '\t'])?;
            Some(text.split_at(at))
        })?;
    let mut parts = date.split('-');
    let year = number(parts.next()?, 4..=4)?;
    let short = if rest.is_empty() { 2 } else { 1 };
    let month = number(parts.next()?, short..=2)?;
    let day = number(parts.next()?, short..=2)?;
    if parts.next().is_some() {
        return None;
    }
    let date = || {
        Date::new(
            year.try_into().ok()?,
            month.try_into().ok()?,
            day.try_into().ok()?,
        )
        .ok()
    };
    if rest.is_empty() {
        let day = date().map(|date| DateOrDateTime {
            date,
            time: None,
            offset: None,
        });
        return Some(day.ok_or(InvalidDate));
    }
    let rest = match rest.strip_prefix(['T', 't']) {
        Some(rest) => rest,
        None => rest.trim_start_matches([' ', '\t']),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.');
    let (time, zone) = rest.split_at(end.unwrap_or(rest.len()));
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = time.split(':');
    let hour = number(parts.next()?, 1..=2)?;
    let minute = number(parts.next()?, 2..=2)?;
    let second = number(parts.next()?, 2..=2)?;
    if parts.next().is_some() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let micros: i32 = fraction.parse().ok()?;
    let zone = zone.trim_start_matches([' ', '\t']);
    let offset = match zone {
        "" => None,
        zone => Some(zone_of(zone)?),
    };
    let moment = || {
        let time = Time::new(
            hour.try_into().ok()?,
            minute.try_into().ok()?,
            second.try_into().ok()?,
            micros * 1000,
        );
        Some(DateOrDateTime {
            date: date()?,
            time: Some(time.ok()?),
            offset: match offset {
                None => None,
                Some(seconds) => Some(Offset::from_seconds(seconds).ok()?),
            },
        })
    };
    Some(moment().ok_or(InvalidDate))
}

fn split(text: &str, at: usize) -> Option<(&str, &str)> {
    text.is_char_boundary(at).then(|| text.split_at(at))
}

fn number(text: &str, length: std::ops::RangeInclusive<usize>) -> Option<i32> {
    let is_one = length.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| text.parse().ok())?
}

/// The offset from UTC in seconds.
fn zone_of(text: &str) -> Option<i32> {
    let (sign, rest) = match text.chars().next()? {
        'Z' | 'z' if text.len() == 1 => return Some(0),
        '+' => (1, &text[1..]),
        '-' => (-1, &text[1..]),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "00"));
    let (hours, minutes) = (number(hours, 1..=2)?, number(minutes, 2..=2)?);
    Some(sign * (hours * 3600 + minutes * 60))
}

impl DateOrDateTime {
    /// A time on the default date of Python.
    pub(super) fn of_time(time: Time, offset: Option<Offset>) -> Self {
        Self {
            date: jiff::civil::date(1900, 1, 1),
            time: Some(time),
            offset,
        }
    }

    fn at(&self) -> DateTime {
        self.date.to_datetime(self.time.unwrap_or_default())
    }

    fn micros(&self) -> i32 {
        self.at().subsec_nanosecond() / 1000
    }

    /// The UTC offset as `+02:00`, with or without the colon.
    fn zone(&self, colon: &str) -> String {
        let zone = self.offset.map(|offset| Zone(offset).shift(colon));
        zone.unwrap_or_default()
    }

    fn iso(&self, between: &str) -> String {
        let at = self.at();
        let date = format!("{:04}-{:02}-{:02}", at.year(), at.month(), at.day());
        match self.time {
            None => date,
            Some(time) => {
                let (time, zone) = (with_fraction(time), self.zone(":"));
                format!("{date}{between}{time}{zone}")
            }
        }
    }

    /// `isoformat(sep="T", timespec="auto")`
    fn isoformat(&self, args: &[Value]) -> Result<String, Error> {
        if self.time.is_none() {
            let () = from_args(args)?;
            return Ok(self.iso(""));
        }
        let (sep, spec, named): (Option<&str>, Option<&str>, Kwargs) = from_args(args)?;
        let sep = sep.or(named.get("sep")?).unwrap_or("T");
        let spec = spec.or(named.get("timespec")?);
        named.assert_all_used()?;
        let time = Clock::of(self.time.unwrap_or_default(), self.offset).iso(spec)?;
        let date = Self {
            time: None,
            ..*self
        };
        Ok(format!("{}{sep}{time}", date.iso("")))
    }

    /// The form inside a list.
    fn shown(&self) -> String {
        let (year, month, day) = (self.date.year(), self.date.month(), self.date.day());
        match self.time {
            None => format!("datetime.date({year}, {month}, {day})"),
            Some(time) => {
                let parts = Clock::of(time, self.offset).parts();
                format!("datetime.datetime({year}, {month}, {day}, {parts})")
            }
        }
    }

    /// Days since the start of year 1, which is day 1.
    fn ordinal(&self) -> i32 {
        let years = i32::from(self.date.year()) - 1;
        let leap = years / 4 - years / 100 + years / 400;
        years * 365 + leap + i32::from(self.date.day_of_year())
    }

    pub(super) fn strftime(&self, format: &str) -> Result<String, Error> {
        let name = self.offset.map(|offset| Zone(offset).name());
        let name = name.unwrap_or_default();
        let (mut format_, mut rest) = (String::new(), format);
        while let Some((before, after)) = rest.split_once('%') {
            format_.push_str(before);
            let mut letters = after.chars();
            match letters.next() {
                Some('f') => _ = write!(format_, "{:06}", self.micros()),
                Some('z') => format_.push_str(&self.zone("")),
                Some('Z') => format_.push_str(&name),
                Some('c') => format_.push_str("%a %b %e %H:%M:%S %Y"),
                Some('x') => format_.push_str("%m/%d/%y"),
                Some('X') => format_.push_str("%H:%M:%S"),
                Some('s') => {
                    return Err(open_error(
                        "`strftime` cannot write `%s`: it depends on the zone of the machine; `timestamp()` does not",
                    ));
                }
                Some(other) => format_.extend(['%', other]),
                None => format_.push_str("%%"),
            }
            rest = letters.as_str();
        }
        format_.push_str(rest);
        jiff::fmt::strtime::format(&format_, self.at()).map_err(|err| {
            let problem = format!("`strftime` cannot write `{format}`: {err}");
            Error::new(ErrorKind::InvalidOperation, problem)
        })
    }

    fn replaced(&self, named: &Kwargs) -> Result<Self, Error> {
        let wrong = |err: jiff::Error| Error::new(ErrorKind::InvalidOperation, err.to_string());
        let mut date = self.date.with();
        if let Some(year) = named.get::<Option<i16>>("year")? {
            date = date.year(year);
        }
        if let Some(month) = named.get::<Option<i8>>("month")? {
            date = date.month(month);
        }
        if let Some(day) = named.get::<Option<i8>>("day")? {
            date = date.day(day);
        }
        let mut time = self.time.unwrap_or_default().with();
        if self.time.is_some() {
            if let Some(hour) = named.get::<Option<i8>>("hour")? {
                time = time.hour(hour);
            }
            if let Some(minute) = named.get::<Option<i8>>("minute")? {
                time = time.minute(minute);
            }
            if let Some(second) = named.get::<Option<i8>>("second")? {
                time = time.second(second);
            }
            if let Some(micros) = named.get::<Option<i32>>("microsecond")? {
                time = time.subsec_nanosecond(micros * 1000);
            }
        }
        named.assert_all_used()?;
        Ok(Self {
            date: date.build().map_err(wrong)?,
            time: match self.time {
                None => None,
                Some(_) => Some(time.build().map_err(wrong)?),
            },
            offset: self.offset,
        })
    }
}

/// A date or a part of one, as shown inside a list.
pub(super) fn repr(value: &Value) -> Option<String> {
    let moment = value.downcast_object_ref::<DateOrDateTime>();
    moment
        .map(DateOrDateTime::shown)
        .or_else(|| time_parts::repr(value))
}

/// A date formatted by `format`, if the value is one.
pub(super) fn written(value: &Value, format: &str) -> Option<Result<String, Error>> {
    let moment = value.downcast_object_ref::<DateOrDateTime>();
    moment.map(|moment| moment.strftime(format))
}

fn none() -> Value {
    Value::from(())
}

fn zone_value(offset: Option<Offset>) -> Value {
    offset.map_or(none(), |offset| Value::from_object(Zone(offset)))
}

impl Object for DateOrDateTime {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = self.at();
        match (key.as_str()?, self.time) {
            ("year", _) => Some(Value::from(at.year())),
            ("month", _) => Some(Value::from(at.month())),
            ("day", _) => Some(Value::from(at.day())),
            ("hour", Some(_)) => Some(Value::from(at.hour())),
            ("minute", Some(_)) => Some(Value::from(at.minute())),
            ("second", Some(_)) => Some(Value::from(at.second())),
            ("microsecond", Some(_)) => Some(Value::from(self.micros())),
            ("tzinfo", Some(_)) => Some(zone_value(self.offset)),
            ("fold", Some(_)) => Some(Value::from(0)),
            (_, _) => None,
        }
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        name: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        match name {
            "isoformat" => self.isoformat(args).map(Value::from),
            "ctime" => self.strftime("%c").map(Value::from),
            "toordinal" => Ok(Value::from(self.ordinal())),
            "isocalendar" => Ok(Value::from_object(IsoDate::of(self.date))),
            "time" | "timetz" if self.time.is_some() => {
                let offset = self.offset.filter(|_| name == "timetz");
                let time = self.time.unwrap_or_default();
                Ok(Value::from_object(Clock::of(time, offset)))
            }
            "utcoffset" if self.time.is_some() => Ok(self
                .offset
                .map_or(none(), |offset| Value::from_object(Span::of(offset)))),
            "tzname" if self.time.is_some() => Ok(self
                .offset
                .map_or(none(), |offset| Value::from(Zone(offset).name()))),
            "dst" if self.time.is_some() => Ok(none()),
            "strftime" => {
                let (format,): (&str,) = from_args(args)?;
                self.strftime(format).map(Value::from)
            }
            "date" if self.time.is_some() => Ok(Value::from_object(Self {
                date: self.date,
                time: None,
                offset: None,
            })),
            "replace" => {
                let (named,): (Kwargs,) = from_args(args)?;
                self.replaced(&named).map(Value::from_object)
            }
            "weekday" => Ok(Value::from(self.date.weekday().to_monday_zero_offset())),
            "isoweekday" => Ok(Value::from(self.date.weekday().to_monday_one_offset())),
            "timestamp" if self.offset.is_some() => {
                let offset = self.offset.unwrap_or(Offset::UTC);
                let at = offset
                    .to_timestamp(self.at())
                    .map_err(|err| Error::new(ErrorKind::InvalidOperation, err.to_string()))?;
                Ok(Value::from(at.as_duration().as_secs_f64()))
            }
            _ => Err(no_method("date", name)),
        }
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let other = other.downcast_ref::<Self>()?;
        let utc = |moment: &Self| {
            let offset = moment.offset.unwrap_or(Offset::UTC);
            offset.to_timestamp(moment.at()).ok()
        };
        let kind = |moment: &Self| (moment.time.is_some(), moment.offset.is_some());
        Some((kind(self), utc(self)).cmp(&(kind(other), utc(other))))
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iso(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let read =
            read(text).map(|moment| moment.map_or_else(|_| "none".to_owned(), |it| it.iso(" ")));
        assert_eq!(read.as_deref(), expected, "{text}");
    }

    #[test]
    fn moments_are_told_from_other_texts() {
        check("2024-01-15", Some("2024-01-15"));
        check("2024-1-5", None);
        check("2024-01-15T10:20:30Z", Some("2024-01-15 10:20:30+00:00"));
        check(
            "2024-1-5 1:02:03.25 -3",
            Some("2024-01-05 01:02:03.250000-03:00"),
        );
        check("2024-01-15 10:20", None);
        check("2024-01-15 release", None);
        check("2024-01-15-rc1", None);
        check("1.2.3", None);
        check("größer als 1", None);
        check("2024-13-45", Some("none"));
        check("2024-01-15T25:00:00Z", Some("none"));
    }
}
