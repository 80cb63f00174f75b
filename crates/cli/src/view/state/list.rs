//! All states, and the resources of one.

use control::state::queries::listing::{LockStatus, StateLine};
use control::state::queries::version::VersionDocument;
use jiff::Timestamp;
use model::plan::Mode;
use model::state::VersionMark;

use super::{StateLabels, ago, author_words, dash, size};
use crate::view::style::ViewOptions;
use crate::view::table::Table;
use crate::view::text::{clean, count};

pub(crate) fn states(
    lines: &[StateLine],
    names: &StateLabels,
    now: Timestamp,
    look: ViewOptions,
) -> String {
    let headings = [
        "STATE",
        "SERIAL",
        "VERSION",
        "RESOURCES",
        "SIZE",
        "LOCK",
        "WRITTEN",
    ];
    let mut table = Table::new(headings).right(1).right(2).right(3).right(4);
    for line in lines {
        let mut written = vec![ago(line.head.created_at, now)];
        written.extend(
            line.head
                .is_copy()
                .then(|| VersionMark::Copy.words().to_owned()),
        );
        written.extend(author_words(
            &line.author,
            look.width.saturating_sub(96),
            look,
        ));
        table.row([
            names.of(&line.state),
            line.head.serial.to_string(),
            line.head.version.to_string(),
            match &line.resources {
                Ok(resources) => resources.to_string(),
                Err(_) => "unknown".to_owned(),
            },
            size(line.head.size),
            line.lock.as_ref().map_or_else(|| dash(look), lock),
            written.join(", "),
        ]);
    }
    table.render(look)
}

fn lock(lock: &LockStatus) -> String {
    match (lock.held.run, lock.is_alive) {
        (Some(run), Some(true)) => run.to_string(),
        (Some(run), _) => format!("{run}, gone"),
        (None, _) => clean(&lock.held.info.who).into_owned(),
    }
}

/// One address on a line, so that other programs can read it.
pub(crate) fn resources(asked: &VersionDocument) -> String {
    let lines = asked.document.instances.iter().map(|instance| {
        let tainted = if instance.is_tainted {
            "   tainted"
        } else {
            ""
        };
        format!("{}{tainted}\n", clean(&instance.address))
    });
    lines.collect()
}

/// `12 resources and 3 data sources in version 4 (serial 18).`
pub(crate) fn closing(asked: &VersionDocument) -> String {
    let of = |mode: Mode| {
        let instances = asked.document.instances.iter();
        instances.filter(|instance| instance.mode == mode).count()
    };
    let mut words = count(of(Mode::Managed), "resource");
    if of(Mode::Data) > 0 {
        words = format!("{words} and {}", count(of(Mode::Data), "data source"));
    }
    let version = &asked.version;
    format!(
        "{words} in version {} (serial {}).\n",
        version.version, version.serial
    )
}
