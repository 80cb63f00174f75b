//! The state server as real engines use it, with a token and nothing else.

use model::state::break_glass::BreakGlassAction;
use model::state::token::TokenScope;

use crate::endpoint::{Home, network};
use crate::engines::{APPLY, DESTROY, INIT, PLAN, Slot, and, engines};
use crate::listening::Client;

const PATH: &str = "/state/p/network";

async fn run(slot: &Slot, client: &Client, args: &[&str], expected: i32) -> String {
    let said = slot.run_with(client.environment(PATH), args).await;
    slot.check(said, expected)
}

#[tokio::test]
async fn from_nothing_to_nothing() {
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let server = home.serve().await;
        let client = home.client(&server, TokenScope::Write).await;
        run(&slot, &client, INIT, 0).await;
        run(&slot, &client, PLAN, 0).await;
        run(&slot, &client, APPLY, 0).await;
        let said = run(&slot, &client, PLAN, 0).await;
        assert!(said.contains("No changes"), "{said}");
        run(&slot, &client, &and(APPLY, &["-var=word=two"]), 0).await;
        assert_eq!(
            home.head().await.unwrap()["outputs"]["word"]["value"],
            "two"
        );
        run(&slot, &client, DESTROY, 0).await;
        assert_eq!(
            home.head().await.unwrap()["resources"],
            serde_json::json!([])
        );
        assert_eq!(home.lock_holder().await, None);
        assert_eq!(home.refusals().await, [""; 0]);
    }
}

/// As GitLab's documentation has it, and for proxies that do not pass LOCK.
#[tokio::test]
async fn other_methods_on_a_lock_path() {
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let server = home.serve().await;
        let client = home.client(&server, TokenScope::Write).await;
        let path = "/api/v4/projects/42/terraform/state/network";
        let mut environment = client.environment(path);
        let lock = format!("http://{}{path}/lock", server.address);
        environment.extend([
            ("TF_HTTP_LOCK_ADDRESS", lock.clone()),
            ("TF_HTTP_UNLOCK_ADDRESS", lock),
            ("TF_HTTP_LOCK_METHOD", "POST".to_owned()),
            ("TF_HTTP_UNLOCK_METHOD", "DELETE".to_owned()),
            ("TF_HTTP_UPDATE_METHOD", "PUT".to_owned()),
        ]);
        for args in [INIT, APPLY, DESTROY] {
            slot.check(slot.run_with(environment.clone(), args).await, 0);
        }
        let state = model::state::StateName::new("42", "network");
        assert_eq!(
            home.store.state_version_list(&state).await.unwrap().len(),
            2
        );
        assert_eq!(
            home.store.state_get(&state).await.unwrap().unwrap().lock,
            None
        );
    }
}

#[tokio::test]
async fn a_lock_that_was_left_behind_is_shown_and_forced() {
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let server = home.serve().await;
        let client = home.client(&server, TokenScope::Write).await;
        run(&slot, &client, INIT, 0).await;
        let left = r#"{"ID":"9c3d0000-0000-0000-0000-000000000000","Operation":"OperationTypeApply","Info":"","Who":"somebody@elsewhere","Version":"1.11.4","Created":"2026-11-15T18:52:29Z","Path":""}"#;
        assert_eq!(client.ask(&format!("LOCK {PATH}"), left).await, "200");
        let said = run(&slot, &client, APPLY, 1).await;
        assert!(said.contains("9c3d0000"), "the holder is named: {said}");
        let force = [
            "force-unlock",
            "-force",
            "9c3d0000-0000-0000-0000-000000000000",
        ];
        run(&slot, &client, &force, 0).await;
        run(&slot, &client, APPLY, 0).await;
        let records = home.store.break_glass_list(&network()).await.unwrap();
        assert_eq!(records.len(), 1, "{}", engine.display());
        assert_eq!(
            (records[0].act, &records[0].reason),
            (BreakGlassAction::LockBroken, &None)
        );
    }
}

#[tokio::test]
async fn of_two_writers_without_a_lock_one_wins() {
    for engine in engines() {
        let home = Home::new().await;
        let server = home.serve().await;
        let client = home.client(&server, TokenScope::Write).await;
        let (first, second) = (Slot::new(&engine), Slot::new(&engine));
        for slot in [&first, &second] {
            run(slot, &client, INIT, 0).await;
        }
        run(&first, &client, APPLY, 0).await;
        // Both saw the same state; the second one's saved plan is older than the first one's write.
        let change = |word| and(PLAN, &["-lock=false", "-out=saved", word]);
        run(&first, &client, &change("-var=word=a"), 0).await;
        run(&second, &client, &change("-var=word=b"), 0).await;
        let serial = home.head().await.unwrap()["serial"].clone();
        let saved = ["apply", "-no-color", "-lock=false", "saved"];
        run(&first, &client, &saved, 0).await;
        run(&second, &client, &saved, 1).await;
        let head = home.head().await.unwrap();
        assert_ne!(head["serial"], serial);
        assert_eq!(head["outputs"]["word"]["value"], "a");
    }
}

#[tokio::test]
async fn a_push_by_force_needs_surgery() {
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let server = home.serve().await;
        let client = home.client(&server, TokenScope::Write).await;
        let surgeon = home.client(&server, TokenScope::Surgery).await;
        run(&slot, &client, INIT, 0).await;
        run(&slot, &client, APPLY, 0).await;
        let old = run(&slot, &client, &["state", "pull"], 0).await;
        std::fs::write(slot.dir.path().join("old.tfstate"), old).unwrap();
        for word in ["-var=word=two", "-var=word=three"] {
            run(&slot, &client, &and(APPLY, &[word]), 0).await;
        }
        let push = ["state", "push", "-force", "old.tfstate"];
        run(&slot, &client, &push, 1).await;
        assert_eq!(
            home.head().await.unwrap()["outputs"]["word"]["value"],
            "three"
        );
        run(&slot, &surgeon, &push, 0).await;
        assert_eq!(
            home.head().await.unwrap()["outputs"]["word"]["value"],
            "one"
        );
        let records = home.store.break_glass_list(&network()).await.unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!(
            (records[0].act, records[0].actor.name.as_str()),
            (BreakGlassAction::StatePushed, "surgery")
        );
    }
}

#[tokio::test]
async fn a_state_on_disk_moves_in() {
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let server = home.serve().await;
        let client = home.client(&server, TokenScope::Write).await;
        let source = slot.dir.path().join("main.tf");
        let text = std::fs::read_to_string(&source).unwrap();
        std::fs::write(&source, text.replace(r#"backend "http" {}"#, "")).unwrap();
        run(&slot, &client, INIT, 0).await;
        run(&slot, &client, APPLY, 0).await;
        std::fs::write(&source, &text).unwrap();
        let migrate = and(INIT, &["-migrate-state", "-force-copy"]);
        run(&slot, &client, &migrate, 0).await;
        let said = run(&slot, &client, PLAN, 0).await;
        assert!(said.contains("No changes"), "{said}");
        assert_eq!(
            home.head().await.unwrap()["outputs"]["word"]["value"],
            "one"
        );
    }
}

#[tokio::test]
async fn a_token_that_may_only_read_plans_without_a_lock() {
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let server = home.serve().await;
        let client = home.client(&server, TokenScope::Read).await;
        run(&slot, &client, INIT, 0).await;
        run(&slot, &client, &and(PLAN, &["-lock=false"]), 0).await;
        run(&slot, &client, PLAN, 1).await;
        let refusals = home.refusals().await;
        assert_eq!(refusals, ["LOCK: token `read`: its scope is `read`"]);
    }
}
