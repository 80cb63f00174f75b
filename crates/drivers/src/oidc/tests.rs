//! Tokens of a real issuer on loopback: accepted only if every check passes.

use testkit::{Issuer, SigningMethod, TestToken};

use super::*;

async fn verify(issuer: &Issuer, token: TestToken<'_>) -> Result<Claims, VerifyTokenError> {
    let token = Secret::new(token.mint());
    let oidc = Oidc::new().unwrap();
    oidc.verify(&token, issuer.address(), "terrane").await
}

async fn refusal(issuer: &Issuer, token: TestToken<'_>) -> String {
    let said = verify(issuer, token).await.unwrap_err().to_string();
    said.replace(issuer.address(), "ISSUER")
}

#[tokio::test]
async fn a_good_token_is_believed() {
    let issuer = Issuer::start();
    for signed in [SigningMethod::Es256, SigningMethod::Rs256] {
        let token = issuer.token(&[("repository", "example/infra")]);
        let claims = verify(&issuer, token.signed(signed)).await.unwrap();
        assert_eq!(claims["repository"], "example/infra", "{signed:?}");
    }
    let token = issuer.token(&[]).claim("aud", r#"["other","terrane"]"#);
    assert!(verify(&issuer, token).await.is_ok());
}

#[tokio::test]
async fn a_token_is_refused_for_what_is_wrong_with_it() {
    let issuer = Issuer::start();
    let plain = || issuer.token(&[]);
    let later = (jiff::Timestamp::now().as_second() + 3600).to_string();
    let cases = [
        (plain().expired(), "it has expired"),
        (plain().claim("nbf", later), "it is not valid yet"),
        (plain().without("exp"), "it has no `exp`"),
        (plain().without("aud"), "it has no `aud`"),
        (
            plain().claim("aud", "\"other\""),
            "it is for `other`, not for `terrane`",
        ),
        (
            plain().claim("iss", "\"https://example.io\""),
            "it comes from `https://example.io`, not from `ISSUER`",
        ),
        (
            plain().without("iss"),
            "it comes from `(none)`, not from `ISSUER`",
        ),
        (
            plain().signed(SigningMethod::None),
            "it is signed with `none`, but only `RS256` and `ES256` are accepted",
        ),
        (
            plain().signed(SigningMethod::PublicKeyAsSecret),
            "it is signed with `HS256`, but only `RS256` and `ES256` are accepted",
        ),
        (
            plain().signed(SigningMethod::ByAnother),
            "its signature does not match the issuer's key",
        ),
        (
            plain().signed(SigningMethod::Unpublished),
            "`ISSUER` has no key `other` for `ES256`",
        ),
    ];
    for (token, why) in cases {
        assert_eq!(refusal(&issuer, token).await, why);
    }
}

#[tokio::test]
async fn what_was_changed_on_the_way_is_refused() {
    let issuer = Issuer::start();
    let oidc = Oidc::new().unwrap();
    let good = issuer.token(&[("ref", "refs/heads/other")]).mint();
    let better = issuer.token(&[("ref", "refs/heads/main")]).mint();
    let (start, signature) = good.rsplit_once('.').unwrap();
    let mixed = format!("{}.{signature}", better.rsplit_once('.').unwrap().0);
    for (token, why) in [
        (
            mixed.as_str(),
            "its signature does not match the issuer's key",
        ),
        (start, "it is not a signed token"),
        ("", "it is not a signed token"),
        ("a.b.c", "it is not a signed token"),
    ] {
        let token = Secret::new(token);
        let refused = oidc.verify(&token, issuer.address(), "terrane").await;
        assert_eq!(refused.unwrap_err().to_string(), why);
    }
}

/// A token with another `iss` claim is refused without any request.
#[tokio::test]
async fn another_issuer_is_never_asked() {
    let (issuer, other) = (Issuer::start(), Issuer::start());
    let token = Secret::new(other.token(&[]).mint());
    let oidc = Oidc::new().unwrap();
    let refused = oidc.verify(&token, issuer.address(), "terrane").await;
    assert!(matches!(refused, Err(VerifyTokenError::Issuer { .. })));
    assert_eq!((issuer.asked(), other.asked()), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn an_issuer_that_does_not_answer() {
    let issuer = Issuer::start();
    issuer.go_down();
    let err = verify(&issuer, issuer.token(&[])).await.unwrap_err();
    let VerifyTokenError::Keys { source, .. } = &err else {
        panic!("{err}");
    };
    let said = source.to_string().replace(issuer.address(), "ISSUER");
    assert_eq!(
        said,
        "`ISSUER/.well-known/openid-configuration` answered 503"
    );
    let open = Secret::new(
        issuer
            .token(&[])
            .claim("iss", "\"http://example.io\"")
            .mint(),
    );
    let oidc = Oidc::new().unwrap();
    let refused = oidc.verify(&open, "http://example.io", "terrane").await;
    let source = std::error::Error::source(refused.as_ref().unwrap_err()).unwrap();
    assert_eq!(
        source.to_string(),
        "`http://example.io/.well-known/openid-configuration` is not an `https://` address"
    );
}

#[tokio::test]
async fn a_job_asks_for_its_token() {
    let issuer = Issuer::start();
    issuer.answer_job(&[("repository", "example/infra")]);
    let oidc = Oidc::new().unwrap();
    let (address, bearer) = (issuer.job_address(), Secret::new(Issuer::BEARER));
    let token = oidc
        .token_of_github_job(&address, &bearer, "terrane")
        .await
        .unwrap();
    let claims = oidc.verify(&token, issuer.address(), "terrane").await;
    assert_eq!(claims.unwrap()["repository"], "example/infra");
    let wrong = Secret::new("wrong");
    let refused = oidc.token_of_github_job(&address, &wrong, "terrane").await;
    let said = refused.unwrap_err().to_string();
    assert_eq!(
        said.replace(issuer.address(), "ISSUER"),
        "`ISSUER/job` answered 401"
    );
}

#[tokio::test]
async fn keys_are_asked_for_once_and_again_for_one_that_is_not_among_them() {
    let issuer = Issuer::start();
    let oidc = Oidc::new().unwrap();
    let verify = async |token: TestToken<'_>| {
        let token = Secret::new(token.mint());
        oidc.clone()
            .verify(&token, issuer.address(), "terrane")
            .await
    };
    for signed in [
        SigningMethod::Es256,
        SigningMethod::Rs256,
        SigningMethod::Es256,
    ] {
        assert!(verify(issuer.token(&[]).signed(signed)).await.is_ok());
    }
    let once = issuer.asked().len();
    assert_eq!(once, 2, "{:?}", issuer.asked());
    let unknown = issuer.token(&[]).signed(SigningMethod::Unpublished);
    let refused = verify(unknown).await.unwrap_err();
    assert!(
        matches!(refused, VerifyTokenError::UnknownKey { .. }),
        "{refused}"
    );
    assert_eq!(issuer.asked().len(), 2 * once);
    // A cached key needs no request to the issuer.
    issuer.go_down();
    assert!(verify(issuer.token(&[])).await.is_ok());
}
