//! Where secrets of runs stand in states: places, never values.
//!
//! Not here: finding them and heeding them (`model::state::hidden`), and when (`control::hidden`).

use std::collections::BTreeSet;

use model::state::StateName;
use model::state::hidden::Place;

use crate::db::name_args;
use crate::db::{DbError, Row, Tx, Value};
use crate::{Store, StoreError};

impl Store {
    /// The places that hold a secret in a version of a state; none: from now on.
    pub async fn hidden_list(
        &self,
        state: &StateName,
        version: Option<i64>,
    ) -> Result<BTreeSet<Place>, StoreError> {
        let mut places = self.hidden_list_to_show(state, version).await?;
        places.remove(&Place::everything());
        Ok(places)
    }

    /// The same for who shows the state: all of it, if a note of what is secret in it does not open.
    pub async fn hidden_list_to_show(
        &self,
        state: &StateName,
        version: Option<i64>,
    ) -> Result<BTreeSet<Place>, StoreError> {
        const SELECT: &str = "SELECT place FROM hidden \
            WHERE project = $1 AND name = $2 AND (ended IS NULL OR ended > $3)";
        let mut args = name_args(state).to_vec();
        args.push(version.unwrap_or(i64::MAX).into());
        let rows = self.db.fetch_all(SELECT, &args).await?;
        rows.iter().map(read).collect()
    }

    pub(crate) async fn hidden_set_unknown(
        &self,
        state: &StateName,
        is_unknown: bool,
    ) -> Result<(), StoreError> {
        const KNOWN: &str = "DELETE FROM hidden WHERE project = $1 AND name = $2 AND place = $3";
        let everything = Place::everything();
        if is_unknown {
            return self.hidden_note(state, &BTreeSet::from([everything])).await;
        }
        let args = place_args(state, &everything);
        self.db.execute(KNOWN, &args).await?;
        Ok(())
    }

    /// All that was ever noted.
    pub(crate) async fn hidden_list_all(&self) -> Result<Vec<(StateName, Place)>, StoreError> {
        const SELECT: &str = "SELECT place, project, name FROM hidden ORDER BY project, name";
        let rows = self.db.fetch_all(SELECT, &[]).await?;
        let all = rows.iter().map(|row| {
            let state = StateName::new(row.text(1)?, row.text(2)?);
            Ok((state, read(row)?))
        });
        let mut all = all.collect::<Result<Vec<_>, StoreError>>()?;
        all.retain(|(_, place)| *place != Place::everything());
        Ok(all)
    }

    /// Notes more of them.
    pub async fn hidden_add(
        &self,
        state: &StateName,
        places: &BTreeSet<Place>,
    ) -> Result<(), StoreError> {
        const UPSERT: &str = "INSERT INTO hidden (project, name, place) VALUES ($1, $2, $3) \
            ON CONFLICT (project, name, place) DO UPDATE SET ended = NULL";
        if places.is_empty() {
            return Ok(());
        }
        // Files that know more than the tables do no harm; it is the tables that are asked.
        let kept = self.notes_keep_places(state, places).await;
        let mut tx = self.db.begin_write().await?;
        for place in places {
            tx.execute(UPSERT, &place_args(state, place)).await?;
        }
        tx.commit().await?;
        kept
    }

    /// The same of what the files say; what ended meanwhile stays so.
    pub(crate) async fn hidden_note(
        &self,
        state: &StateName,
        places: &BTreeSet<Place>,
    ) -> Result<(), StoreError> {
        const INSERT: &str = "INSERT INTO hidden (project, name, place) VALUES ($1, $2, $3) \
            ON CONFLICT (project, name, place) DO NOTHING";
        for place in places {
            self.db.execute(INSERT, &place_args(state, place)).await?;
        }
        Ok(())
    }

    /// From this version on something else stands there.
    pub async fn hidden_end(
        &self,
        state: &StateName,
        places: &BTreeSet<Place>,
        version: i64,
    ) -> Result<(), StoreError> {
        const END: &str = "UPDATE hidden SET ended = $4 \
            WHERE project = $1 AND name = $2 AND place = $3 AND ended IS NULL";
        let mut tx = self.db.begin_write().await?;
        for place in places {
            let mut args = place_args(state, place).to_vec();
            args.push(version.into());
            tx.execute(END, &args).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}

impl Tx {
    /// All places count again: older content came back, or nobody knows.
    pub(crate) async fn hidden_count_again(&mut self, state: &StateName) -> Result<(), DbError> {
        const AGAIN: &str = "UPDATE hidden SET ended = NULL \
            WHERE project = $1 AND name = $2 AND ended IS NOT NULL";
        self.execute(AGAIN, &name_args(state)).await.map(drop)
    }
}

fn place_args(state: &StateName, place: &Place) -> [Value; 3] {
    let [project, name] = name_args(state);
    let place = serde_json::to_string(place).unwrap_or_default();
    [project, name, place.as_str().into()]
}

fn read(row: &Row) -> Result<Place, StoreError> {
    let text = row.text(0)?;
    serde_json::from_str(text).map_err(|_| StoreError::Row {
        found: text.to_owned(),
        expected: "a place in a state",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestHome, network};

    fn place(path: &str) -> BTreeSet<Place> {
        BTreeSet::from([Place::value("output.url", path)])
    }

    #[tokio::test]
    async fn a_place_that_ended_still_counts_for_older_versions() {
        let home = TestHome::new();
        let (store, state) = (home.open().await, network());
        let [a, b] = [place("a"), place("b")];
        store.hidden_add(&state, &a).await.unwrap();
        store.hidden_add(&state, &b).await.unwrap();
        store.hidden_end(&state, &a, 4).await.unwrap();
        let at = async |version| store.hidden_list(&state, version).await.unwrap();
        assert_eq!(at(Some(3)).await, &a | &b);
        assert_eq!(at(Some(4)).await, b);
        assert_eq!(at(None).await, b);
        // A secret is there again: versions in between are hidden along with it.
        store.hidden_add(&state, &a).await.unwrap();
        assert_eq!(at(Some(4)).await, &a | &b);
    }
}
