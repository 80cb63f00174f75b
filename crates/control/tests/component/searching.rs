//! Search in all states: what is found, what only its whole text finds, and when it was there.

use control::state::queries::search::{SearchQuery, SearchResult, search};
use model::plan::PlanValue;
use model::state::glob::Glob;
use serde_json::json;

use crate::states::written;
use crate::world::World;

fn query(text: &str) -> SearchQuery {
    SearchQuery {
        text: text.to_owned(),
        ..SearchQuery::default()
    }
}

async fn found(world: &World, text: &str) -> SearchResult {
    search(&world.control, &query(text)).await.unwrap()
}

#[tokio::test]
async fn a_value_is_found_in_every_state_that_has_it() {
    let mut world = World::chain(&["a", "b"]).await;
    world.auto_apply(&[]).await;
    let hits = found(&world, "ID-OF").await.hits;
    let states: Vec<&str> = hits.iter().map(|hit| hit.state.name.as_str()).collect();
    assert_eq!(states, ["a", "a", "b", "b", "b"], "{hits:?}");
}

#[tokio::test]
async fn an_address_is_found_by_a_part_of_it() {
    let (world, _) = written(&["1"]).await;
    let hits = found(&world, "data.r").await.hits;
    assert_eq!(
        (hits[0].address.as_str(), &hits[0].value),
        ("terraform_data.r", &None)
    );
}

#[tokio::test]
async fn a_search_for_another_type_finds_nothing() {
    let (world, _) = written(&["needle"]).await;
    let types = Some(Glob::parse("aws_*").unwrap());
    let asked = SearchQuery {
        types,
        ..query("needle")
    };
    assert_eq!(search(&world.control, &asked).await.unwrap().hits, []);
}

#[tokio::test]
async fn a_value_of_the_past_is_found_only_in_the_past() {
    let (world, _) = written(&["needle", "2", "3"]).await;
    assert_eq!(found(&world, "needle").await.hits, []);
    let asked = SearchQuery {
        all_versions: true,
        ..query("needle")
    };
    let hits = search(&world.control, &asked).await.unwrap().hits;
    assert_eq!((hits[0].first, hits[0].last), (1, Some(1)));
}

#[tokio::test]
async fn a_search_at_a_time_looks_at_the_version_of_then() {
    let (world, client) = written(&["needle"]).await;
    let at = Some(world.head("a").await.unwrap().created_at);
    client
        .write(None, crate::states::body(2, "x"))
        .await
        .unwrap();
    let asked = SearchQuery {
        at,
        ..query("needle")
    };
    assert_eq!(search(&world.control, &asked).await.unwrap().hits.len(), 1);
}

#[tokio::test]
async fn a_deleted_state_is_not_searched() {
    let (world, client) = written(&["needle"]).await;
    client.delete(None).await.unwrap();
    assert_eq!(found(&world, "needle").await.hits, []);
}

async fn with_a_password() -> World {
    let mut world = World::single().await;
    let script = json!({"resources": {"r": "1"}, "outputs": {"login": "correct-horse"}, "sensitive": ["login"]});
    world.script("a", &script);
    world.auto_apply(&[]).await;
    world
}

#[tokio::test]
async fn a_sensitive_value_is_not_found_by_a_part_of_it() {
    let world = with_a_password().await;
    assert_eq!(found(&world, "correct").await.hits, []);
}

#[tokio::test]
async fn a_sensitive_value_is_found_masked_by_its_whole_text() {
    let world = with_a_password().await;
    let hits = found(&world, "correct-horse").await.hits;
    assert_eq!(hits[0].address, "output.login");
    assert!(matches!(hits[0].value, Some((_, PlanValue::Masked { .. }))));
}
