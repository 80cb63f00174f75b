//! TOML with positions. Dates and times are read as text.

use ::toml::de::{DeTable, DeValue};
use model::render::data::{Data, MapEntry, MapKey, Node};

use super::{LineIndex, ReadDataError};

pub(super) fn read(places: &LineIndex<'_>) -> Result<Node, ReadDataError> {
    let table = DeTable::parse(places.text).map_err(|err| {
        let span = err.span().unwrap_or(0..0);
        // This message quotes nothing of the text.
        let problem = format!("this is not TOML: {}", err.message());
        ReadDataError::new(places.at(span.start, span.end), problem)
    })?;
    Ok(Node::new(map(places, table.get_ref()), places.at(0, 0)))
}

fn map(places: &LineIndex<'_>, table: &DeTable<'_>) -> Data {
    let mut entries: Vec<MapEntry> = table
        .iter()
        .map(|(key, value)| MapEntry {
            key: MapKey::Text(key.get_ref().clone().into_owned()),
            at: places.at(key.span().start, key.span().end),
            node: Node::new(
                data(places, value.get_ref()),
                places.at(value.span().start, value.span().end),
            ),
        })
        .collect();
    // In the order of the text; the parser's table is sorted by name.
    entries.sort_by_key(|entry| entry.at.start);
    Data::Map(entries)
}

fn data(places: &LineIndex<'_>, value: &DeValue<'_>) -> Data {
    match value {
        DeValue::String(text) => Data::Text(text.clone().into_owned()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Data::Text(number.to_string()), Data::Int),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or_else(|_| Data::Text(number.to_string()), Data::Float),
        DeValue::Boolean(value) => Data::Bool(*value),
        DeValue::Datetime(moment) if moment.date.is_some() => Data::Moment(moment.to_string()),
        DeValue::Datetime(time) => Data::Text(time.to_string()),
        DeValue::Array(items) => Data::List(
            items
                .iter()
                .map(|item| {
                    let span = item.span();
                    Node::new(
                        data(places, item.get_ref()),
                        places.at(span.start, span.end),
                    )
                })
                .collect(),
        ),
        DeValue::Table(table) => map(places, table),
    }
}
