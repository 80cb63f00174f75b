//! A state changed by hand: resources taken out, a file pushed.

use control::state::surgery::{self, SurgeryError, SurgeryOutcome, SurgeryProposal};
use model::base::error::Explain as _;
use model::state::{StateVersion, VersionMark};
use serde_json::json;

use crate::states::{a, body, lock, open_acts, other, reason, state_of_a, value, written, wrote};
use crate::world::World;

async fn take_out(world: &World, address: &str) -> Result<StateVersion, SurgeryError> {
    let addresses = [address.to_owned()];
    let proposal = surgery::take_out(&world.control, &a(world), &addresses).await?;
    Ok(carry_out(world, proposal).await)
}

async fn carry_out(world: &World, proposal: SurgeryProposal) -> StateVersion {
    wrote(surgery::carry_out(&world.control, proposal, &reason("by hand")).await)
}

async fn push(world: &World, file: Vec<u8>, force: bool) -> Result<SurgeryOutcome, SurgeryError> {
    let proposal = surgery::push(&world.control, &a(world), file, force).await?;
    surgery::carry_out(&world.control, proposal, &reason("by hand")).await
}

fn hint(refused: &SurgeryError) -> String {
    refused.hint().unwrap_or_default()
}

async fn of_two() -> World {
    let mut world = World::single().await;
    world.script("a", &json!({"resources": {"r": "1", "s": "1"}}));
    world.auto_apply(&[]).await;
    world
}

#[tokio::test]
async fn a_resource_that_was_taken_out_is_planned_as_new() {
    let mut world = of_two().await;
    take_out(&world, "terraform_data.s").await.unwrap();
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(
        state_of_a(&world).await["resources"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn the_other_resources_stay_when_one_is_taken_out() {
    let world = of_two().await;
    let version = take_out(&world, "terraform_data.s").await.unwrap();
    assert_eq!(
        (version.serial, version.mark),
        (2, Some(VersionMark::Edited))
    );
    let state = state_of_a(&world).await;
    assert_eq!(state["resources"][0]["name"], "r");
    assert_eq!(state["resources"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_unknown_resource_is_not_taken_out() {
    let world = of_two().await;
    let refused = take_out(&world, "terraform_data.t").await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot remove anything from state `demo/a`"
    );
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn nothing_is_taken_out_of_a_state_that_does_not_exist() {
    let world = World::single().await;
    let refused = take_out(&world, "terraform_data.r").await.unwrap_err();
    assert_eq!(refused.to_string(), "there is no state `demo/a`");
}

#[tokio::test]
async fn the_record_names_what_was_taken_out() {
    let world = of_two().await;
    take_out(&world, "terraform_data.s").await.unwrap();
    let acts = open_acts(&world).await;
    assert_eq!(acts[0].detail, "version 2: without terraform_data.s");
}

#[tokio::test]
async fn a_pushed_file_with_a_later_serial_is_the_newest_version() {
    let (world, _) = written(&["1"]).await;
    let version = wrote(push(&world, body(5, "pushed"), false).await);
    assert_eq!((version.serial, version.actor.name.as_str()), (5, "alice"));
    assert_eq!(value(&world).await, "pushed");
}

#[tokio::test]
async fn a_pushed_file_is_the_first_version_of_a_new_state() {
    let world = World::single().await;
    let version = wrote(push(&world, body(5, "pushed"), false).await);
    assert_eq!((version.version, version.serial), (1, 5));
}

#[tokio::test]
async fn a_pushed_file_with_a_used_serial_is_refused() {
    let (world, _) = written(&["1", "2"]).await;
    let refused = push(&world, body(2, "pushed"), false).await.unwrap_err();
    assert_eq!(hint(&refused), "`--force` gives it the next serial");
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn a_pushed_file_with_an_earlier_serial_is_refused() {
    let (world, _) = written(&["1", "2"]).await;
    let refused = push(&world, body(1, "pushed"), false).await.unwrap_err();
    assert_eq!(hint(&refused), "`--force` gives it the next serial");
}

#[tokio::test]
async fn a_forced_file_gets_the_next_serial() {
    let (world, _) = written(&["1", "2"]).await;
    let version = wrote(push(&world, body(1, "pushed"), true).await);
    assert_eq!(
        (version.serial, version.mark),
        (3, Some(VersionMark::Forced))
    );
    assert_eq!(value(&world).await, "pushed");
}

#[tokio::test]
async fn a_pushed_file_of_another_lineage_is_refused() {
    let (world, _) = written(&["1"]).await;
    let refused = push(&world, other(9, "pushed"), false).await.unwrap_err();
    assert_eq!(hint(&refused), "`--force` replaces this state with it");
}

#[tokio::test]
async fn a_forced_file_of_another_lineage_replaces_the_state() {
    let (world, _) = written(&["1"]).await;
    let proposal = surgery::push(&world.control, &a(&world), other(9, "pushed"), true)
        .await
        .unwrap();
    assert_eq!(
        proposal.other_lineage(),
        Some(("l".to_owned(), "m".to_owned()))
    );
    let version = carry_out(&world, proposal).await;
    assert_eq!(version.lineage, "m");
}

#[tokio::test]
async fn a_file_that_the_state_already_is_writes_nothing_and_leaves_no_record() {
    let (world, _) = written(&["1"]).await;
    let done = push(&world, body(1, "1"), false).await.unwrap();
    assert!(matches!(done, SurgeryOutcome::Same(_)));
    assert_eq!(open_acts(&world).await, []);
}

#[tokio::test]
async fn a_file_that_is_no_state_is_refused() {
    let world = World::single().await;
    let refused = push(&world, b"{}".to_vec(), true).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "this cannot be a version of state `demo/a`"
    );
}

#[tokio::test]
async fn a_refused_push_leaves_the_state_unlocked() {
    let (world, client) = written(&["1"]).await;
    push(&world, body(1, "pushed"), false).await.unwrap_err();
    client.lock(&lock("x")).await.unwrap();
}

#[tokio::test]
async fn a_refused_write_of_a_client_becomes_the_newest_version_by_its_number() {
    let (world, client) = written(&["1", "2"]).await;
    client.write(None, body(2, "late")).await.unwrap_err();
    let refused = control::state::queries::refusals(&world.control, Some(&a(&world)))
        .await
        .unwrap();
    let proposal = surgery::push_refused(&world.control, &a(&world), refused[0].id, true).await;
    let version = carry_out(&world, proposal.unwrap()).await;
    assert_eq!(version.serial, 3);
    assert_eq!(value(&world).await, "late");
}

#[tokio::test]
async fn a_refused_write_of_one_state_is_not_pushed_to_another() {
    let (world, client) = written(&["1", "2"]).await;
    client.write(None, body(2, "late")).await.unwrap_err();
    let number = control::state::queries::refusals(&world.control, None)
        .await
        .unwrap()[0]
        .id;
    let elsewhere = world.control.state_name("b");
    let refused = surgery::push_refused(&world.control, &elsewhere, number, true).await;
    assert!(matches!(refused, Err(SurgeryError::NothingRefused { .. })));
}
