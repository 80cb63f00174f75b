//! States that an engine could not deliver: adopted if that is safe, else kept until a person decides.

use control::changeset::prepare::PrepareError;
use control::changeset::restrictions::Restrictions;
use control::state::quarantine;
use control::state::surgery;
use model::base::error::Explain as _;
use model::base::ids::{ChangeSetId, RunId};
use model::run::changeset::Action;
use serde_json::json;

use crate::states::{a, body, open_acts, other, reason, value, written, wrote};
use crate::world::World;

/// Makes each apply of the engine end with this state in a file, as if it could not send it.
fn keep_back(world: &World, state: Vec<u8>) {
    let state = String::from_utf8(state).unwrap();
    world.before_engine(&format!(
        "test \"$1\" = apply && printf %s '{state}' > errored.tfstate && exit 1"
    ));
}

/// Stack `a` with a state of one version; an apply left this one behind.
async fn after_keeping_back(state: Vec<u8>) -> (World, ChangeSetId) {
    let (mut world, _) = written(&["x"]).await;
    keep_back(&world, state);
    let set = world.auto_apply(&[]).await;
    world.before_engine("");
    (world, set)
}

/// The same with a state of another lineage, which nobody can adopt.
async fn left_behind() -> (World, RunId) {
    let (world, set) = after_keeping_back(other(2, "1")).await;
    let run = world.run(set, "a").await.id;
    (world, run)
}

async fn begin_apply(world: &mut World) -> Result<ChangeSetId, PrepareError> {
    let request = world.request(Action::Apply, &[]);
    world.begin(&request).await
}

#[tokio::test]
async fn a_state_that_was_not_delivered_is_adopted_if_nobody_wrote_since() {
    let (world, set) = after_keeping_back(body(2, "1")).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    assert_eq!(
        (value(&world).await.as_str(), world.serial("a").await),
        ("1", 2)
    );
}

#[tokio::test]
async fn an_adopted_state_belongs_to_the_run_that_left_it() {
    let (world, set) = after_keeping_back(body(2, "1")).await;
    let run = world.run(set, "a").await.id;
    assert_eq!(world.head("a").await.unwrap().run, Some(run));
}

#[tokio::test]
async fn an_adopted_state_is_what_the_next_apply_starts_from() {
    let (mut world, _) = after_keeping_back(body(2, "1")).await;
    world.script("a", &json!({"resources": {"r": "1"}}));
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
}

#[tokio::test]
async fn a_state_without_a_later_serial_is_quarantined() {
    let (world, _) = after_keeping_back(body(1, "1")).await;
    let kept = Restrictions::read(&world.control).await.unwrap().kept;
    assert_eq!(kept[0].why, "its serial 1 is not after the head's 1");
}

#[tokio::test]
async fn a_state_that_lost_all_resources_is_quarantined() {
    let empty = br#"{"version":4,"serial":2,"lineage":"l","outputs":{},"resources":[]}"#;
    let (world, _) = after_keeping_back(empty.to_vec()).await;
    let kept = Restrictions::read(&world.control).await.unwrap().kept;
    assert_eq!(
        kept[0].why,
        "it has no resources, but the plan does not remove them all"
    );
}

#[tokio::test]
async fn a_file_that_is_no_state_is_quarantined() {
    let (world, _) = after_keeping_back(b"half a st".to_vec()).await;
    let kept = Restrictions::read(&world.control).await.unwrap().kept;
    assert!(
        kept[0].why.starts_with("it is not a state"),
        "{}",
        kept[0].why
    );
}

#[tokio::test]
async fn a_state_of_another_lineage_is_quarantined() {
    let (world, run) = left_behind().await;
    assert_eq!(value(&world).await, "x");
    let kept = Restrictions::read(&world.control).await.unwrap().kept;
    assert_eq!((kept[0].run, kept[0].state.name.as_str()), (run, "a"));
    assert!(
        kept[0].why.starts_with("its lineage `m` is not the head's"),
        "{}",
        kept[0].why
    );
}

#[tokio::test]
async fn a_quarantined_state_blocks_the_next_apply() {
    let (mut world, run) = left_behind().await;
    let refused = begin_apply(&mut world).await.unwrap_err();
    assert_eq!(refused.to_string(), "cannot apply stack `a` now");
    let steps: Vec<String> = refused
        .next_steps()
        .iter()
        .map(|step| format!("{step:?}"))
        .collect();
    assert!(
        steps
            .join(" ")
            .contains(&format!("run discard {run} --reason")),
        "{steps:?}"
    );
}

#[tokio::test]
async fn a_state_is_discarded_once() {
    let (world, run) = left_behind().await;
    let why = reason("imported by hand");
    quarantine::discard(&world.control, run, &why)
        .await
        .unwrap();
    let again = quarantine::discard(&world.control, run, &why)
        .await
        .unwrap_err();
    assert_eq!(
        again.to_string(),
        format!("run {run} left no quarantined state")
    );
}

#[tokio::test]
async fn an_unknown_run_left_nothing_to_discard() {
    let world = World::single().await;
    let refused = quarantine::discard(&world.control, RunId(99), &reason("x")).await;
    assert_eq!(refused.unwrap_err().to_string(), "there is no run r99");
}

#[tokio::test]
async fn a_kept_state_of_another_lineage_needs_force() {
    let (world, run) = left_behind().await;
    let proposal = surgery::push_kept(&world.control, &a(&world), run, false)
        .await
        .unwrap();
    let refused = surgery::carry_out(&world.control, proposal, &reason("it is right")).await;
    let hint = refused.unwrap_err().hint();
    assert_eq!(
        hint.as_deref(),
        Some("`--force` replaces this state with it")
    );
}

#[tokio::test]
async fn a_kept_state_that_a_person_pushes_is_the_newest_version_and_blocks_no_more() {
    let (mut world, run) = left_behind().await;
    let proposal = surgery::push_kept(&world.control, &a(&world), run, true)
        .await
        .unwrap();
    let done = surgery::carry_out(&world.control, proposal, &reason("it is right")).await;
    assert_eq!(wrote(done).lineage, "m");
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(open_acts(&world).await, []);
}

#[tokio::test]
async fn a_run_that_left_nothing_has_nothing_to_push() {
    let mut world = World::single().await;
    let set = world.auto_apply(&[]).await;
    let run = world.run(set, "a").await.id;
    let refused = surgery::push_kept(&world.control, &a(&world), run, true)
        .await
        .unwrap_err();
    let why = format!("run {run} left no quarantined state for state `demo/a`");
    assert_eq!(refused.to_string(), why);
}

#[tokio::test]
async fn a_push_of_another_file_decides_about_the_quarantined_state() {
    let (mut world, _) = left_behind().await;
    let proposal = surgery::push(&world.control, &a(&world), body(2, "2"), false).await;
    let why = reason("it is right");
    surgery::carry_out(&world.control, proposal.unwrap(), &why)
        .await
        .unwrap();
    assert!(begin_apply(&mut world).await.is_ok());
}

#[tokio::test]
async fn a_plan_that_waits_is_not_applied_over_a_quarantined_state() {
    let (mut world, _) = written(&["x"]).await;
    let waiting = world.apply(&[]).await;
    keep_back(&world, other(2, "1"));
    world.auto_apply(&[]).await;
    world.before_engine("");
    drop(world.confirm(waiting, "alice").await);
    assert_eq!(value(&world).await, "x");
}

#[tokio::test]
async fn a_discarded_state_stays_readable_by_its_number() {
    let (world, run) = left_behind().await;
    let why = reason("imported by hand");
    let left = quarantine::discard(&world.control, run, &why)
        .await
        .unwrap();
    let kept = surgery::push_refused(&world.control, &a(&world), left[0].id, true).await;
    assert_eq!(kept.unwrap().body, other(2, "1"));
}
