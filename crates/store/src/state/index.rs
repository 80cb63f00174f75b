//! An index of versions: which objects are in which versions, and which version set each value. Values are
//! keyed digests.
//!
//! Derived data: it is written by queries, never with the state. Each version is added in small transactions
//! that may be repeated; it counts once the last one has moved `state_index.version`. Rows beyond that come
//! from an interrupted update and are ignored.
//!
//! Not here: reading and comparing (`control::state::versions`, `model::state::history`).

use model::state::StateName;
use model::state::history::{Counts, IndexedObject, IndexedObjects, VersionChange};
use model::state::leaves::EntryKind;

use crate::db::name_args;
use crate::db::{Row, Value};
use crate::{Store, StoreError};

/// Rows per transaction, so that other writers do not wait long.
const BATCH: usize = 500;

/// The numbers of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionSummary {
    pub version: i64,
    pub counts: Counts,
    /// Why the version could not be read.
    pub opaque: Option<String>,
}

/// A value in an indexed version, and the version that set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastChange {
    pub path: String,
    pub version: i64,
    pub digest: String,
}

/// An object, and the versions that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectLifetime {
    pub address: String,
    pub type_name: String,
    pub kind: EntryKind,
    pub first_version: i64,
    /// `None` if it still exists.
    pub last_version: Option<i64>,
}

impl Store {
    /// Keeps the index in memory for this process if `err` means that nothing can be written. Returns whether
    /// the caller can try again.
    pub async fn state_index_in_memory(&self, err: &StoreError) -> bool {
        match err {
            StoreError::Db(err) => self.db.index_in_memory(err).await,
            _ => false,
        }
    }

    /// The last version indexed in this form; zero if none. An index in another form is removed.
    pub async fn state_index_begin(
        &self,
        state: &StateName,
        form: &str,
    ) -> Result<i64, StoreError> {
        const FIND: &str = "SELECT i.version, i.form FROM state_index AS i \
            JOIN state AS s ON s.id = i.state WHERE s.project = $1 AND s.name = $2";
        const INSERT: &str = "INSERT INTO state_index (state, version, form) \
            SELECT id, 0, $3 FROM state WHERE project = $1 AND name = $2 \
            ON CONFLICT (state) DO UPDATE SET version = 0, form = $3";
        let found = self.db.fetch_optional(FIND, &name_args(state)).await?;
        match &found {
            Some(row) if row.text(1)? == form => return Ok(row.int(0)?),
            Some(_) => self.state_index_clear(state).await?,
            None => {}
        }
        let mut args = name_args(state).to_vec();
        args.push(form.into());
        self.db.execute(INSERT, &args).await?;
        Ok(0)
    }

    async fn state_index_clear(&self, state: &StateName) -> Result<(), StoreError> {
        const FORGET: &str = "UPDATE state_index SET version = 0, form = '' WHERE state = \
            (SELECT id FROM state WHERE project = $1 AND name = $2)";
        const CHANGES: &str = "DELETE FROM state_index_change \
            WHERE state = (SELECT id FROM state WHERE project = $1 AND name = $2) AND address IN \
            (SELECT e.address FROM state_index_change AS e JOIN state AS s ON s.id = e.state \
             WHERE s.project = $1 AND s.name = $2 LIMIT 50)";
        const ENTRIES: &str = "DELETE FROM state_index_entry \
            WHERE state = (SELECT id FROM state WHERE project = $1 AND name = $2) AND address IN \
            (SELECT e.address FROM state_index_entry AS e JOIN state AS s ON s.id = e.state \
             WHERE s.project = $1 AND s.name = $2 LIMIT 500)";
        const VERSIONS: &str = "DELETE FROM state_index_version \
            WHERE state = (SELECT id FROM state WHERE project = $1 AND name = $2)";
        let args = name_args(state);
        self.db.execute(FORGET, &args).await?;
        while self.db.execute(CHANGES, &args).await? > 0 {}
        while self.db.execute(ENTRIES, &args).await? > 0 {}
        self.db.execute(VERSIONS, &args).await?;
        Ok(())
    }

    /// The content of the newest indexed version.
    pub async fn state_index_holdings(
        &self,
        state: &StateName,
    ) -> Result<IndexedObjects, StoreError> {
        const LEAVES: &str = "SELECT c.address, c.path, c.after FROM state_index_change AS c \
            JOIN state_index AS i ON i.state = c.state JOIN state AS s ON s.id = c.state \
            WHERE s.project = $1 AND s.name = $2 AND c.version <= i.version \
            AND c.after IS NOT NULL AND NOT EXISTS (SELECT 1 FROM state_index_change AS later \
              WHERE later.state = c.state AND later.address = c.address AND later.path = c.path \
              AND later.version > c.version AND later.version <= i.version)";
        let mut holdings = IndexedObjects::new();
        for entry in self.state_index_entries(state).await? {
            if entry.last_version.is_none() {
                let holding = IndexedObject {
                    kind: entry.kind,
                    type_name: entry.type_name,
                    leaves: std::collections::BTreeMap::new(),
                };
                holdings.insert(entry.address, holding);
            }
        }
        for row in self.db.fetch_all(LEAVES, &name_args(state)).await? {
            if let Some(holding) = holdings.get_mut(row.text(0)?) {
                let leaf = (row.text(1)?.to_owned(), row.text(2)?.to_owned());
                holding.leaves.extend([leaf]);
            }
        }
        Ok(holdings)
    }

    /// Adds the version that follows `done`. False if another process was first: then read again.
    pub async fn state_index_add(
        &self,
        state: &StateName,
        done: i64,
        version: i64,
        step: &VersionChange,
        holdings: &IndexedObjects,
        opaque: Option<&str>,
    ) -> Result<bool, StoreError> {
        const CHANGE: &str = "INSERT INTO state_index_change \
            (state, version, address, path, before, after) VALUES ($1, $2, $3, $4, $5, $6) \
            ON CONFLICT (state, address, path, version) DO NOTHING";
        const APPEARED: &str = "INSERT INTO state_index_entry \
            (state, first_version, address, type, kind) VALUES ($1, $2, $3, $4, $5) \
            ON CONFLICT (state, address, first_version) DO NOTHING";
        const GONE: &str = "UPDATE state_index_entry SET last_version = $2 - 1 \
            WHERE state = $1 AND address = $3 AND last_version IS NULL AND first_version < $2";
        const SUMMARY: &str = "INSERT INTO state_index_version \
            (state, version, resources, added, changed, removed, others, opaque) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (state, version) DO NOTHING";
        const MOVE: &str = "UPDATE state_index SET version = $2 WHERE state = $1 AND version = $3";
        let Some(row) = self.state_get(state).await? else {
            return Ok(false);
        };
        let with = |rest: Vec<Value>| -> Vec<Value> {
            let head = [row.id.into(), version.into()];
            head.into_iter().chain(rest).collect()
        };
        self.in_batches(CHANGE, &step.changes, |change| {
            with(vec![
                change.address.as_str().into(),
                change.path.as_str().into(),
                change.before.as_deref().into(),
                change.after.as_deref().into(),
            ])
        })
        .await?;
        let appeared = step.appeared.iter();
        let appeared: Vec<(&String, &IndexedObject)> = appeared
            .filter_map(|address| holdings.get_key_value(address))
            .collect();
        self.in_batches(APPEARED, &appeared, |(address, holding)| {
            with(vec![
                address.as_str().into(),
                holding.type_name.as_str().into(),
                holding.kind.as_str().into(),
            ])
        })
        .await?;
        let gone = |address: &String| with(vec![address.as_str().into()]);
        self.in_batches(GONE, &step.gone, gone).await?;
        let counts = step.counts;
        let numbers = [
            counts.resources,
            counts.added,
            counts.changed,
            counts.removed,
            counts.others,
        ];
        let mut rest: Vec<Value> = numbers.map(|number| integer(number).into()).to_vec();
        rest.push(opaque.into());
        let mut tx = self.db.begin_learning().await?;
        tx.execute(SUMMARY, &with(rest)).await?;
        let moved = tx.execute(MOVE, &with(vec![done.into()])).await?;
        if moved == 1 {
            tx.commit().await?;
        }
        Ok(moved == 1)
    }

    async fn in_batches<T>(
        &self,
        sql: &'static str,
        items: &[T],
        args: impl Fn(&T) -> Vec<Value>,
    ) -> Result<(), StoreError> {
        for batch in items.chunks(BATCH) {
            let mut tx = self.db.begin_learning().await?;
            for item in batch {
                tx.execute(sql, &args(item)).await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }

    /// The numbers of every indexed version, oldest first.
    pub async fn state_index_versions(
        &self,
        state: &StateName,
    ) -> Result<Vec<VersionSummary>, StoreError> {
        const SQL: &str = "SELECT v.version, v.resources, v.added, v.changed, v.removed, \
            v.others, v.opaque FROM state_index_version AS v \
            JOIN state_index AS i ON i.state = v.state JOIN state AS s ON s.id = v.state \
            WHERE s.project = $1 AND s.name = $2 AND v.version <= i.version ORDER BY v.version";
        let rows = self.db.fetch_all(SQL, &name_args(state)).await?;
        rows.iter().map(read_summary).collect()
    }

    /// The values of one object in an indexed version, each with the version that set it.
    pub async fn state_index_last_changes(
        &self,
        state: &StateName,
        address: &str,
        version: i64,
    ) -> Result<Vec<LastChange>, StoreError> {
        const SQL: &str = "SELECT c.path, c.version, c.after FROM state_index_change AS c \
            JOIN state_index AS i ON i.state = c.state JOIN state AS s ON s.id = c.state \
            WHERE s.project = $1 AND s.name = $2 AND c.address = $3 \
            AND c.version <= i.version AND c.version <= $4 \
            AND c.after IS NOT NULL AND NOT EXISTS (SELECT 1 FROM state_index_change AS later \
              WHERE later.state = c.state AND later.address = c.address AND later.path = c.path \
              AND later.version > c.version AND later.version <= i.version \
              AND later.version <= $4) ORDER BY c.path";
        let mut args = name_args(state).to_vec();
        args.extend([address.into(), version.into()]);
        let rows = self.db.fetch_all(SQL, &args).await?;
        rows.iter()
            .map(|row| {
                Ok(LastChange {
                    path: row.text(0)?.to_owned(),
                    version: row.int(1)?,
                    digest: row.text(2)?.to_owned(),
                })
            })
            .collect()
    }

    /// Every object of any indexed version.
    pub async fn state_index_entries(
        &self,
        state: &StateName,
    ) -> Result<Vec<ObjectLifetime>, StoreError> {
        const SQL: &str = "SELECT e.address, e.type, e.kind, e.first_version, e.last_version, \
            i.version FROM state_index_entry AS e JOIN state_index AS i ON i.state = e.state \
            JOIN state AS s ON s.id = e.state WHERE s.project = $1 AND s.name = $2 \
            AND e.first_version <= i.version ORDER BY e.address, e.first_version";
        let rows = self.db.fetch_all(SQL, &name_args(state)).await?;
        rows.iter().map(read_appearance).collect()
    }

    /// The values that were set after one version and are in another, each with the last version that has it; `None`
    /// if the newest has it. The versions between the two may be removed.
    pub async fn state_index_spans(
        &self,
        state: &StateName,
        after: i64,
        version: i64,
    ) -> Result<Vec<(String, String, Option<i64>)>, StoreError> {
        const SQL: &str = "SELECT c.address, c.path, (SELECT MIN(later.version) \
              FROM state_index_change AS later WHERE later.state = c.state \
              AND later.address = c.address AND later.path = c.path \
              AND later.version > c.version AND later.version <= i.version) \
            FROM state_index_change AS c \
            JOIN state_index AS i ON i.state = c.state JOIN state AS s ON s.id = c.state \
            WHERE s.project = $1 AND s.name = $2 AND c.version > $3 AND c.version <= $4 \
            AND c.version <= i.version AND c.after IS NOT NULL";
        let mut args = name_args(state).to_vec();
        args.extend([after.into(), version.into()]);
        let mut spans = Vec::new();
        for row in self.db.fetch_all(SQL, &args).await? {
            let until = row.opt_int(2)?.map(|next| next - 1);
            if until.is_none_or(|until| until >= version) {
                spans.push((row.text(0)?.to_owned(), row.text(1)?.to_owned(), until));
            }
        }
        Ok(spans)
    }
}

fn integer(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn natural(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

fn read_summary(row: &Row) -> Result<VersionSummary, StoreError> {
    Ok(VersionSummary {
        version: row.int(0)?,
        counts: Counts {
            resources: natural(row.int(1)?),
            added: natural(row.int(2)?),
            changed: natural(row.int(3)?),
            removed: natural(row.int(4)?),
            others: natural(row.int(5)?),
        },
        opaque: row.opt_text(6)?.map(str::to_owned),
    })
}

fn read_appearance(row: &Row) -> Result<ObjectLifetime, StoreError> {
    let word = row.text(2)?;
    let kind = EntryKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == word);
    let read_up_to = row.int(5)?;
    Ok(ObjectLifetime {
        address: row.text(0)?.to_owned(),
        type_name: row.text(1)?.to_owned(),
        kind: kind.ok_or_else(|| StoreError::Row {
            found: word.to_owned(),
            expected: "a kind of entry",
        })?,
        first_version: row.int(3)?,
        // Closed by an interrupted update: in the versions that count it still exists.
        last_version: row.opt_int(4)?.filter(|last| *last < read_up_to),
    })
}

#[cfg(test)]
mod tests;
