//! Programs of contexts around stages: when they run, and what follows if one fails.

use model::base::ids::ChangeSetId;
use model::run::Stage;
use model::run::changeset::Action;
use serde_json::json;
use testkit::write_program;

use crate::recovery::{hanging, lose_in_hook, write_hang};
use crate::world::{World, stack};

fn hook(when: &str, stage: &str, words: &str) -> String {
    format!("  hook \"{when}\" \"{stage}\" {{ run = [{words}] }}\n")
}

fn noting(when: &str, stage: &str) -> String {
    hook(when, stage, &format!("\"./note.sh\", \"{when}\""))
}

fn context(name: &str, lines: &str) -> String {
    format!("context \"{name}\" {{\n  autoattach = [\"*\"]\n{lines}}}\n")
}

/// A stack `a` with these contexts. `note.sh` notes its argument, the stage and the outcome; `fail.sh` fails while
/// it was not fixed.
async fn world(contexts: &str) -> World {
    let world = World::new(&(contexts.to_owned() + &stack("a", ""))).await;
    world.script("a", &json!({"resources": {"r": "1"}}));
    let noted = world.root().join("../noted");
    let note = format!(
        "#!/bin/sh\necho \"$1 $TERRANE_STAGE ${{TERRANE_OUTCOME-begins}}\" >> '{}'\n",
        noted.display()
    );
    write_program(&world.root().join("note.sh"), &note);
    let mended = world.root().join("../mended");
    let fail = format!(
        "#!/bin/sh\necho 'the token has expired'\ntest -e '{}'\n",
        mended.display()
    );
    write_program(&world.root().join("fail.sh"), &fail);
    world
}

fn mend(world: &World) {
    std::fs::write(world.root().join("../mended"), "").unwrap();
}

/// The lines of `note.sh`, one after another.
fn noted(world: &World) -> String {
    let text = std::fs::read_to_string(world.root().join("../noted")).unwrap_or_default();
    text.lines().collect::<Vec<_>>().join(", ")
}

/// A run that is applied, and whose hook after that failed.
async fn not_done() -> (World, ChangeSetId) {
    let lines = hook("after", "apply", "\"./fail.sh\"") + &noting("after", "apply");
    let mut world = world(&context("tell", &lines)).await;
    let set = world.auto_apply(&[]).await;
    (world, set)
}

#[tokio::test]
async fn hooks_run_around_init_plan_and_apply() {
    let lines: String = ["init", "plan", "apply"]
        .map(|stage| noting("before", stage) + &noting("after", stage))
        .concat();
    let mut world = world(&context("notes", &lines)).await;
    world.auto_apply(&[]).await;
    assert_eq!(
        noted(&world),
        "before plan begins, before init begins, after init succeeded, after plan succeeded, \
         before apply begins, after apply succeeded"
    );
}

#[tokio::test]
async fn stronger_contexts_are_nearer_to_the_stage() {
    let lines = |name: &str| {
        hook("before", "plan", &format!("\"./note.sh\", \"{name}\""))
            + &hook("after", "plan", &format!("\"./note.sh\", \"{name}\""))
    };
    let strong = context(
        "strong",
        &("  priority = 10\n".to_owned() + &lines("strong")),
    );
    let mut world = world(&(strong + &context("weak", &lines("weak")))).await;
    world.plan(&[]).await;
    assert_eq!(
        noted(&world),
        "weak plan begins, strong plan begins, strong plan succeeded, weak plan succeeded"
    );
}

#[tokio::test]
async fn hooks_of_init_do_not_run_where_nothing_is_initialised() {
    let mut world = world(&context("notes", &noting("before", "init"))).await;
    world.auto_apply(&[]).await;
    world.auto_apply(&[]).await;
    assert_eq!(noted(&world), "before init begins");
}

#[tokio::test]
async fn a_plan_runs_no_hook_of_an_apply() {
    let lines = noting("after", "plan") + &noting("before", "apply") + &noting("after", "apply");
    let mut world = world(&context("notes", &lines)).await;
    world.plan(&[]).await;
    assert_eq!(noted(&world), "after plan succeeded");
}

#[tokio::test]
async fn a_hook_that_fails_before_a_plan_fails_the_run_with_its_words() {
    let lines = hook("before", "plan", "\"./fail.sh\"") + &noting("before", "plan");
    let mut world = world(&context("login", &lines)).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    let problem = world.problem(set, "a").await;
    assert_eq!(
        problem.message,
        "hook before plan of context `login` failed: `./fail.sh` ended with exit code 1"
    );
    assert_eq!(problem.diagnostics[0].detail, "the token has expired");
    assert_eq!(noted(&world), "", "no further hook runs");
}

#[tokio::test]
async fn hooks_after_a_plan_that_did_not_begin_are_told() {
    let lines = hook("before", "plan", "\"./fail.sh\"") + &noting("after", "plan");
    let mut world = world(&context("login", &lines)).await;
    world.auto_apply(&[]).await;
    assert_eq!(noted(&world), "after plan failed");
}

#[tokio::test]
async fn a_hook_that_fails_after_a_plan_rejects_it() {
    let mut world = world(&context("scan", &hook("after", "plan", "\"./fail.sh\""))).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    assert_eq!(world.serial("a").await, 0);
}

#[tokio::test]
async fn a_hook_that_fails_before_an_apply_keeps_it_from_beginning() {
    let mut world = world(&context("login", &hook("before", "apply", "\"./fail.sh\""))).await;
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.problem(set, "a").await.stage, Stage::Applying);
    assert_eq!(world.serial("a").await, 0);
}

#[tokio::test]
async fn a_hook_that_fails_after_an_apply_leaves_it_applied_and_not_done() {
    let (world, set) = not_done().await;
    assert_eq!(world.summary(set).await, "stopped: a not done");
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn all_hooks_after_an_apply_run_though_one_fails() {
    let (world, _) = not_done().await;
    assert_eq!(noted(&world), "after apply succeeded");
}

#[tokio::test]
async fn a_retry_runs_hooks_after_an_apply_again_and_not_the_engine() {
    let (mut world, set) = not_done().await;
    mend(&world);
    world.retry(set, "a", false).await.unwrap();
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(world.serial("a").await, 1);
    assert_eq!(
        noted(&world),
        "after apply succeeded, after apply succeeded"
    );
}

#[tokio::test]
async fn hooks_after_an_apply_that_failed_run_with_the_next_apply_though_nothing_changed() {
    let (mut world, _) = not_done().await;
    mend(&world);
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a unchanged");
    assert_eq!(
        noted(&world),
        "after apply succeeded, after apply succeeded"
    );
}

#[tokio::test]
async fn hooks_after_an_apply_that_succeeded_do_not_run_when_nothing_changed() {
    let mut world = world(&context("tell", &noting("after", "apply"))).await;
    world.auto_apply(&[]).await;
    world.auto_apply(&[]).await;
    assert_eq!(noted(&world), "after apply succeeded");
}

#[tokio::test]
async fn hooks_after_a_failed_apply_are_told() {
    let mut world = world(&context("tell", &noting("after", "apply"))).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "apply_error_at": "r"}),
    );
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "stopped: a failed");
    assert_eq!(noted(&world), "after apply failed");
}

#[tokio::test]
async fn a_hook_that_fails_after_a_failed_apply_is_only_a_warning() {
    let mut world = world(&context("tell", &hook("after", "apply", "\"./fail.sh\""))).await;
    world.script(
        "a",
        &json!({"resources": {"r": "1"}, "apply_error_at": "r"}),
    );
    let set = world.auto_apply(&[]).await;
    let problem = world.problem(set, "a").await;
    assert!(
        problem.brief().starts_with("cannot change `r`"),
        "{problem:?}"
    );
    let warnings = world
        .control
        .home
        .run_warnings(world.run(set, "a").await.id);
    let warnings = std::fs::read_to_string(warnings).unwrap();
    assert!(warnings.contains("hook after apply of context `tell` failed"));
}

#[tokio::test]
async fn hooks_after_an_apply_run_again_after_their_runner_died() {
    let blocks = hanging("after", "apply") + &stack("a", "");
    let mut world = World::new(&blocks).await;
    write_hang(&world);
    world.script("a", &json!({"resources": {"r": "1"}}));
    let mut request = world.request(Action::Apply, &[]);
    request.auto_approve = true;
    let set = world.begin(&request).await.unwrap();
    lose_in_hook(&mut world, set).await;
    assert_eq!(world.summary(set).await, "applying: a applied");
    world.drive(set).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(world.serial("a").await, 1);
}

#[tokio::test]
async fn hooks_after_an_apply_whose_runner_died_run_with_the_next_that_finds_nothing_to_change() {
    let contexts = hanging("before", "apply") + &context("tell", &noting("after", "apply"));
    let mut world = world(&contexts).await;
    write_hang(&world);
    // The engine has nothing to do in the end, as if it had finished before its runner died.
    world.auto_apply(&[]).await;
    world.script("a", &json!({"resources": {"r": "2"}}));
    let mut request = world.request(Action::Apply, &[]);
    request.auto_approve = true;
    let set = world.begin(&request).await.unwrap();
    lose_in_hook(&mut world, set).await;
    world.drive(set).await;
    world.script("a", &json!({"resources": {"r": "1"}}));
    let next = world.auto_apply(&[]).await;
    assert_eq!(world.summary(next).await, "finished: a unchanged");
    assert_eq!(
        noted(&world),
        "after apply succeeded, after apply succeeded"
    );
}

#[tokio::test]
async fn a_hook_knows_its_stack_and_whether_it_is_destroyed() {
    let lines = hook("before", "apply", "\"./who.sh\"");
    let mut world = world(&context("who", &lines)).await;
    let noted_in = world.root().join("../noted");
    let who = format!(
        "#!/bin/sh\necho \"$TERRANE_STACK $TERRANE_TARGET $TERRANE_DESTROY\" >> '{}'\n",
        noted_in.display()
    );
    write_program(&world.root().join("who.sh"), &who);
    world.auto_apply(&[]).await;
    world.destroy(&[]).await;
    assert_eq!(noted(&world), "a local false, a local true");
}

#[tokio::test]
async fn a_hook_gets_the_environment_of_its_context_and_nothing_else_of_the_caller() {
    let lines =
        "  env = { REGION = \"west\" }\n".to_owned() + &hook("before", "plan", "\"./env.sh\"");
    let mut world = world(&context("env", &lines)).await;
    world.env.insert("LEAK".to_owned(), "leaked".to_owned());
    let noted_in = world.root().join("../noted");
    let env = format!(
        "#!/bin/sh\necho \"$REGION ${{LEAK-none}}\" >> '{}'\n",
        noted_in.display()
    );
    write_program(&world.root().join("env.sh"), &env);
    world.plan(&[]).await;
    assert_eq!(noted(&world), "west none");
}

#[tokio::test]
async fn a_hook_between_plan_and_apply_has_the_plan() {
    let lines = hook("after", "plan", "\"./plan.sh\"");
    let mut world = world(&context("scan", &lines)).await;
    write_program(
        &world.root().join("plan.sh"),
        "#!/bin/sh\ntest -s \"$TERRANE_PLAN\"\n",
    );
    let set = world.plan(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a planned");
}

#[tokio::test]
async fn a_hook_whose_program_is_not_there_fails_its_run() {
    let lines = hook("before", "plan", "\"no-such-program\"");
    let mut world = world(&context("login", &lines)).await;
    let set = world.plan(&[]).await;
    assert_eq!(
        world.problem(set, "a").await.message,
        "hook before plan of context `login`: there is no program `no-such-program`"
    );
}
