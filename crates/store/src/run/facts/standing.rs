//! Where the facts of stacks stand, and how to get there again.

use std::collections::BTreeMap;

use model::facts::Standing;

use crate::db::Row;
use crate::{Store, StoreError};

impl Store {
    /// Remembers one, in the place of what was known of it before.
    pub async fn fact_standing_put(
        &self,
        project: &str,
        stack: &str,
        standing: &Standing,
    ) -> Result<(), StoreError> {
        const UPSERT: &str = "INSERT INTO fact_standing (project, stack, identity, standing) \
            VALUES ($1, $2, $3, $4) \
            ON CONFLICT (project, stack, identity) DO UPDATE SET standing = excluded.standing";
        let text = serde_json::to_string(standing).unwrap_or_default();
        let identity = standing.identity();
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

    /// It stands there no more.
    pub async fn fact_standing_remove(
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

    /// Of one stack.
    pub async fn fact_standing_list(
        &self,
        project: &str,
        stack: &str,
    ) -> Result<Vec<Standing>, StoreError> {
        const SELECT: &str = "SELECT standing FROM fact_standing \
            WHERE project = $1 AND stack = $2 ORDER BY identity";
        let args = [project.into(), stack.into()];
        let rows = self.db.fetch_all(SELECT, &args).await?;
        rows.iter().map(|row| read(row, 0)).collect()
    }

    /// Of all stacks of a project, those that it no longer has among them.
    pub async fn fact_standing_list_all(
        &self,
        project: &str,
    ) -> Result<BTreeMap<String, Vec<Standing>>, StoreError> {
        const SELECT: &str = "SELECT stack, standing FROM fact_standing \
            WHERE project = $1 ORDER BY stack, identity";
        let mut all: BTreeMap<String, Vec<Standing>> = BTreeMap::new();
        for row in &self.db.fetch_all(SELECT, &[project.into()]).await? {
            let stack = row.text(0)?.to_owned();
            all.entry(stack).or_default().push(read(row, 1)?);
        }
        Ok(all)
    }
}

fn read(row: &Row, column: usize) -> Result<Standing, StoreError> {
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

    fn file(path: &str, digest: &str) -> Standing {
        Standing::File {
            path: path.to_owned(),
            digest: digest.to_owned(),
        }
    }

    #[tokio::test]
    async fn where_facts_stand_is_kept_until_they_are_gone() {
        let home = TestHome::new();
        let store = home.open().await;
        for (stack, standing) in [
            ("one", file("b", "1")),
            ("one", file("a", "1")),
            ("one", file("b", "2")),
            ("two", file("b", "3")),
        ] {
            store
                .fact_standing_put("p", stack, &standing)
                .await
                .unwrap();
        }
        let of_one = store.fact_standing_list("p", "one").await.unwrap();
        assert_eq!(of_one, [file("a", "1"), file("b", "2")]);
        store
            .fact_standing_remove("p", "one", "file a")
            .await
            .unwrap();
        let all = store.fact_standing_list_all("p").await.unwrap();
        let expected = [("one", file("b", "2")), ("two", file("b", "3"))];
        let expected = expected.map(|(stack, standing)| (stack.to_owned(), vec![standing]));
        assert_eq!(all, BTreeMap::from(expected));
        assert!(store.fact_standing_list_all("q").await.unwrap().is_empty());
    }
}
