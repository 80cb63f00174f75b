//! Where the facts of stacks were published.

use std::collections::BTreeMap;

use model::stage::facts::FactLocation;

use crate::db::Row;
use crate::{Store, StoreError};

impl Store {
    /// Records a location; a row with the same identity is replaced.
    pub async fn fact_location_put(
        &self,
        project: &str,
        stack: &str,
        location: &FactLocation,
    ) -> Result<(), StoreError> {
        const UPSERT: &str = "INSERT INTO fact_standing (project, stack, identity, standing) \
            VALUES ($1, $2, $3, $4) \
            ON CONFLICT (project, stack, identity) DO UPDATE SET standing = excluded.standing";
        let text = serde_json::to_string(location).unwrap_or_default();
        let identity = location.identity();
        let mut tx = self.db.begin_write().await?;
        let args = [
            project.into(),
            stack.into(),
            identity.as_str().into(),
            text.as_str().into(),
        ];
        tx.execute(UPSERT, &args).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Forgets a location.
    pub async fn fact_location_remove(
        &self,
        project: &str,
        stack: &str,
        identity: &str,
    ) -> Result<(), StoreError> {
        let mut tx = self.db.begin_write().await?;
        let args = [project.into(), stack.into(), identity.into()];
        tx.execute(
            "DELETE FROM fact_standing WHERE project = $1 AND stack = $2 AND identity = $3",
            &args,
        )
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// The locations of one stack.
    pub async fn fact_location_list(
        &self,
        project: &str,
        stack: &str,
    ) -> Result<Vec<FactLocation>, StoreError> {
        const SELECT: &str = "SELECT standing FROM fact_standing \
            WHERE project = $1 AND stack = $2 ORDER BY identity";
        let args = [project.into(), stack.into()];
        let rows = self.db.fetch_all(SELECT, &args).await?;
        rows.iter().map(|row| read(row, 0)).collect()
    }

    /// The locations of all stacks, also of those that the project no longer has.
    pub async fn fact_location_list_all(
        &self,
        project: &str,
    ) -> Result<BTreeMap<String, Vec<FactLocation>>, StoreError> {
        const SELECT: &str = "SELECT stack, standing FROM fact_standing \
            WHERE project = $1 ORDER BY stack, identity";
        let mut all: BTreeMap<String, Vec<FactLocation>> = BTreeMap::new();
        for row in &self.db.fetch_all(SELECT, &[project.into()]).await? {
            let stack = row.text(0)?.to_owned();
            all.entry(stack).or_default().push(read(row, 1)?);
        }
        Ok(all)
    }
}

fn read(row: &Row, column: usize) -> Result<FactLocation, StoreError> {
    let text = row.text(column)?;
    serde_json::from_str(text).map_err(|_| StoreError::Row {
        found: text.to_owned(),
        expected: "where facts stand",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestHome;

    fn file(path: &str, digest: &str) -> FactLocation {
        FactLocation::File {
            path: path.to_owned(),
            digest: digest.to_owned(),
        }
    }

    #[tokio::test]
    async fn a_location_is_kept_until_it_is_removed() {
        let home = TestHome::new();
        let store = home.open().await;
        for (stack, location) in [
            ("one", file("b", "1")),
            ("one", file("a", "1")),
            ("one", file("b", "2")),
            ("two", file("b", "3")),
        ] {
            store
                .fact_location_put("p", stack, &location)
                .await
                .unwrap();
        }
        let of_one = store.fact_location_list("p", "one").await.unwrap();
        assert_eq!(of_one, [file("a", "1"), file("b", "2")]);
        store
            .fact_location_remove("p", "one", "file a")
            .await
            .unwrap();
        let all = store.fact_location_list_all("p").await.unwrap();
        let expected = [("one", file("b", "2")), ("two", file("b", "3"))];
        let expected = expected.map(|(stack, location)| (stack.to_owned(), vec![location]));
        assert_eq!(all, BTreeMap::from(expected));
        assert!(store.fact_location_list_all("q").await.unwrap().is_empty());
    }
}
