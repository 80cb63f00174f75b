//! Tokens of the server: who has one, and how it ends.

use std::time::Duration;

use control::access::tokens::{self, CreateTokenError, TokenCheck, TokenRequest};
use control::state::client_access::StateService;
use model::base::actor::Actor;
use model::base::secret::Secret;
use model::state::StateName;
use model::state::token::{Lifetime, TokenScope};

use crate::world::World;

fn wish(name: &str) -> TokenRequest {
    TokenRequest {
        name: name.to_owned(),
        states: "demo/*".parse().unwrap(),
        scope: TokenScope::Write,
        lifetime: None,
    }
}

async fn create(world: &World, wish: &TokenRequest) -> Result<Secret, CreateTokenError> {
    tokens::create(&world.control, &Actor::named("alice"), wish).await
}

/// The name of the token with this secret, as a server that starts now knows it.
async fn name_of(world: &World, secret: &str) -> Option<String> {
    let service = StateService::new(world.control.clone());
    let check: &TokenCheck = service.tokens();
    let found = check.find(secret.as_bytes(), true).await.unwrap();
    found.map(|token| token.name.clone())
}

#[tokio::test]
async fn a_token_is_known_by_its_secret() {
    let world = World::single().await;
    let secret = create(&world, &wish("ci")).await.unwrap();
    assert_eq!(
        name_of(&world, secret.expose()).await.as_deref(),
        Some("ci")
    );
}

#[tokio::test]
async fn a_wrong_secret_is_nobody() {
    let world = World::single().await;
    let secret = create(&world, &wish("ci")).await.unwrap();
    let wrong = format!("{}x", secret.expose());
    assert_eq!(name_of(&world, &wrong).await, None);
}

#[tokio::test]
async fn two_tokens_have_two_secrets() {
    let world = World::single().await;
    let one = create(&world, &wish("one")).await.unwrap();
    let two = create(&world, &wish("two")).await.unwrap();
    assert_ne!(one.expose(), two.expose());
    assert_eq!(name_of(&world, two.expose()).await.as_deref(), Some("two"));
}

#[tokio::test]
async fn a_revoked_token_is_refused_and_still_listed() {
    let world = World::single().await;
    let secret = create(&world, &wish("ci")).await.unwrap();
    tokens::revoke(&world.control, &Actor::named("alice"), "ci")
        .await
        .unwrap();
    assert_eq!(name_of(&world, secret.expose()).await, None);
    let listed = tokens::list(&world.control).await.unwrap();
    assert!(listed[0].revoked_at.is_some());
}

#[tokio::test]
async fn an_expired_token_is_refused() {
    let world = World::single().await;
    let brief = TokenRequest {
        lifetime: Some(Lifetime(Duration::from_nanos(1))),
        ..wish("ci")
    };
    let secret = create(&world, &brief).await.unwrap();
    assert_eq!(name_of(&world, secret.expose()).await, None);
}

#[tokio::test]
async fn a_name_is_given_once() {
    let world = World::single().await;
    create(&world, &wish("ci")).await.unwrap();
    let refused = create(&world, &wish("ci")).await.unwrap_err();
    assert_eq!(refused.to_string(), "cannot create token `ci`");
}

#[tokio::test]
async fn an_unknown_token_is_not_revoked() {
    let world = World::single().await;
    let refused = tokens::revoke(&world.control, &Actor::named("alice"), "ci")
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "token `ci` does not exist or is already revoked"
    );
}

#[tokio::test]
async fn the_list_shows_what_each_token_may_do() {
    let world = World::single().await;
    create(&world, &wish("ci")).await.unwrap();
    let listed = tokens::list(&world.control).await.unwrap();
    let token = &listed[0];
    assert_eq!(
        (token.states.as_str(), token.scope),
        ("demo/*", TokenScope::Write)
    );
    assert!(token.allows(TokenScope::Read, &StateName::new("demo", "a")));
    assert!(!token.allows(TokenScope::Read, &StateName::new("shop", "a")));
}

#[tokio::test]
async fn no_secret_is_stored_in_the_home() {
    let world = World::single().await;
    let secret = create(&world, &wish("ci")).await.unwrap();
    let home = world.root().with_file_name("home");
    for entry in std::fs::read_dir(home).unwrap().flatten() {
        let bytes = std::fs::read(entry.path()).unwrap_or_default();
        let holds = bytes
            .windows(20)
            .any(|it| it == &secret.expose().as_bytes()[..20]);
        assert!(!holds, "{}", entry.path().display());
    }
}
