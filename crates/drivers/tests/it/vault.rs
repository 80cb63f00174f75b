//! A real Vault: what its KV store and its logins give, and what it says when it refuses.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use insta::assert_snapshot;
use serde_json::{Value, json};
use testkit::{Issuer, Kubernetes, SigningMethod, Vault};

use crate::sources::Asker;

/// A Vault with a KV store, a policy that reads a part of it, and both ways to log in, all of them this test's own.
struct Scene {
    vault: Vault,
    name: &'static str,
}

impl Scene {
    fn new(name: &'static str) -> Self {
        let vault = Vault::start();
        vault.mount_kv(name);
        let database =
            json!({ "user": "root", "password": "hunter2\n", "port": 5432, "tls": { "key": "k" } });
        for (path, data) in [
            ("team/db%20one", database),
            ("other/db", json!({ "user": "nobody" })),
        ] {
            let body = json!({ "data": data });
            vault.write(&format!("{name}/data/{path}"), &body.to_string());
        }
        let policy = format!("path \"{name}/data/team/*\" {{ capabilities = [\"read\"] }}");
        vault.write(
            &format!("sys/policies/acl/{name}"),
            &json!({ "policy": policy }).to_string(),
        );
        Self { vault, name }
    }

    fn asker(&self, env: &[(&str, &str)]) -> Asker {
        let mut asker = Asker::new(env);
        asker.set("VAULT_ADDR", &self.vault.address());
        asker
    }

    fn shown(&self, said: &str) -> String {
        said.replace(&self.vault.address(), "http://VAULT")
    }
}

#[tokio::test]
async fn a_token_reads_what_is_there() {
    let scene = Scene::new("by-token");
    let asker = scene.asker(&[("VAULT_TOKEN", Vault::ROOT)]);
    assert_eq!(asker.get("vault:by-token/team/db one#user").await, "root");
    assert_eq!(
        asker.get("vault:by-token/team/db one#password").await,
        "hunter2"
    );
    assert_eq!(asker.get("vault:by-token/team/db one#port").await, "5432");
    assert_eq!(asker.get("vault:by-token/team/db one#tls.key").await, "k");
    scene
        .vault
        .write("by-token/delete/other/db", r#"{"versions":[1]}"#);
    let mut said = Vec::new();
    for path in ["team/db one#nothing", "team/missing#user", "other/db#user"] {
        said.push(asker.refusal(&format!("vault:by-token/{path}")).await);
    }
    said.push(asker.refusal("vault:no-such-mount/db#user").await);
    let stranger = scene.asker(&[("VAULT_TOKEN", "hvs.of-a-stranger")]);
    said.push(stranger.refusal("vault:by-token/team/db one#user").await);
    assert_snapshot!(scene.shown(&said.join("\n\n")), @r#"
    `vault:by-token/team/db one` has no `nothing`

    could not read `by-token/team/missing` of Vault at `http://VAULT`
    `http://VAULT/v1/by-token/data/team/missing` answered 404
    hint: is it there (`vault kv get by-token/team/missing`), and is `by-token` a KV store of version 2?

    could not read `by-token/other/db` of Vault at `http://VAULT`
    `http://VAULT/v1/by-token/data/other/db` answered 404
    hint: is it there (`vault kv get by-token/other/db`), and is `by-token` a KV store of version 2?

    could not read `no-such-mount/db` of Vault at `http://VAULT`
    `http://VAULT/v1/no-such-mount/data/db` answered 404: no handler for route "no-such-mount/data/db". route entry not found.
    hint: is it there (`vault kv get no-such-mount/db`), and is `no-such-mount` a KV store of version 2?

    could not read `by-token/team/db one` of Vault at `http://VAULT`
    `http://VAULT/v1/by-token/data/team/db%20one` answered 403: permission denied, invalid token
    hint: the token needs a policy with `read` on `by-token/data/team/db one`
    "#);
}

#[tokio::test]
async fn an_app_role_reads_what_its_policy_allows() {
    let scene = Scene::new("by-approle");
    let (vault, name) = (&scene.vault, scene.name);
    vault.write("sys/auth/by-approle", r#"{"type":"approle"}"#);
    let role = json!({ "token_policies": [name], "token_ttl": "10m" });
    vault.write("auth/by-approle/role/deploy", &role.to_string());
    let field = |text: String, name: &str| {
        let answer: Value = serde_json::from_str(&text).unwrap();
        answer["data"][name].as_str().unwrap().to_owned()
    };
    let role_id = field(vault.read("auth/by-approle/role/deploy/role-id"), "role_id");
    let proof = vault.write("auth/by-approle/role/deploy/secret-id", "{}");
    let proof = field(proof, "secret_id");
    let login = |proof: &str| {
        scene.asker(&[
            ("VAULT_ROLE_ID", role_id.as_str()),
            ("VAULT_SECRET_ID", proof),
            ("VAULT_AUTH_PATH", "by-approle"),
        ])
    };
    let asker = login(&proof);
    assert_eq!(asker.get("vault:by-approle/team/db one#user").await, "root");
    let denied = asker.refusal("vault:by-approle/other/db#user").await;
    let wrong = login("proof-of-somebody")
        .refusal("vault:by-approle/team/db one#user")
        .await;
    assert_snapshot!(scene.shown(&format!("{denied}\n\n{wrong}")), @r#"
    could not read `by-approle/other/db` of Vault at `http://VAULT`
    `http://VAULT/v1/by-approle/data/other/db` answered 403: permission denied
    hint: the token needs a policy with `read` on `by-approle/data/other/db`

    could not log in to Vault at `http://VAULT` with AppRole
    `http://VAULT/v1/auth/by-approle/login` answered 400: invalid role or secret ID
    hint: is the role allowed on `auth/by-approle`, and is the proof still valid?
    "#);
}

#[tokio::test]
async fn a_token_of_a_job_reads_what_its_role_allows() {
    let scene = Scene::new("by-jwt");
    let (vault, name) = (&scene.vault, scene.name);
    let issuer = Issuer::start();
    issuer.answer_job(&[("repository", "example/infra")]);
    vault.write("sys/auth/by-jwt", r#"{"type":"jwt"}"#);
    let config = json!({
        "oidc_discovery_url": issuer.address(),
        "bound_issuer": issuer.address(),
        "jwt_supported_algs": ["RS256", "ES256"],
    });
    vault.write("auth/by-jwt/config", &config.to_string());
    let role = json!({
        "role_type": "jwt",
        "user_claim": "sub",
        "bound_audiences": ["vault"],
        "bound_claims": { "repository": "example/infra" },
        "token_policies": [name],
    });
    vault.write("auth/by-jwt/role/deploy", &role.to_string());
    let base = [("VAULT_ROLE", "deploy"), ("VAULT_AUTH_PATH", "by-jwt")];
    let with = |more: &[(&str, &str)]| scene.asker(&[&base[..], more].concat());
    let token = |repository: &str| {
        let token = issuer.token(&[("repository", repository)]);
        token
            .claim("aud", "\"vault\"")
            .signed(SigningMethod::Rs256)
            .mint()
    };
    let reference = "vault:by-jwt/team/db one#user";
    let asker = with(&[("VAULT_JWT", &token("example/infra"))]);
    assert_eq!(asker.get(reference).await, "root");
    let job = issuer.job_address();
    let asker = with(&[
        ("ACTIONS_ID_TOKEN_REQUEST_URL", &job),
        ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", Issuer::BEARER),
        ("VAULT_JWT_AUDIENCE", "vault"),
    ]);
    assert_eq!(asker.get(reference).await, "root");
    let asker = with(&[("VAULT_JWT", &token("example/other"))]);
    let foreign = asker.refusal(reference).await;
    let mut asker = with(&[("VAULT_JWT", &token("example/infra"))]);
    asker.set("VAULT_ROLE", "unknown");
    let unknown = asker.refusal(reference).await;
    assert_snapshot!(scene.shown(&format!("{foreign}\n\n{unknown}")), @r#"
    could not log in to Vault at `http://VAULT` with a JWT
    `http://VAULT/v1/auth/by-jwt/login` answered 400: error validating claims: claim "repository" does not match any associated bound claim values
    hint: is the role allowed on `auth/by-jwt`, and is the proof still valid?

    could not log in to Vault at `http://VAULT` with a JWT
    `http://VAULT/v1/auth/by-jwt/login` answered 400: role "unknown" could not be found
    hint: is the role allowed on `auth/by-jwt`, and is the proof still valid?
    "#);
}

/// A real API server issues the tokens, and says what they are worth when Vault asks it.
#[tokio::test]
async fn a_pod_reads_what_its_role_allows() {
    let scene = Scene::new("by-pod");
    let (vault, name) = (&scene.vault, scene.name);
    let cluster = Kubernetes::start();
    let namespace = cluster.namespace();
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let token = |account: &str| {
        let body = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": account } });
        cluster.post(&accounts, &body.to_string());
        let body =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
        let answer = cluster.post(&format!("{accounts}/{account}/token"), &body.to_string());
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    };
    let reviewer = token("reviewer");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": format!("reviewer-of-{namespace}") },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:auth-delegator",
        },
        "subjects": [{ "kind": "ServiceAccount", "name": "reviewer", "namespace": namespace }],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    cluster.post(bindings, &binding.to_string());
    let kubeconfig = cluster.kubeconfig();
    let authority = kubeconfig.split("certificate-authority-data: ").nth(1);
    let authority = authority.and_then(|rest| rest.split('}').next()).unwrap();
    let authority = String::from_utf8(BASE64_STANDARD.decode(authority).unwrap()).unwrap();
    vault.write("sys/auth/by-pod", r#"{"type":"kubernetes"}"#);
    let config = json!({
        "kubernetes_host": cluster.address(),
        "kubernetes_ca_cert": authority,
        "token_reviewer_jwt": reviewer,
        "disable_local_ca_jwt": true,
    });
    vault.write("auth/by-pod/config", &config.to_string());
    let role = json!({
        "bound_service_account_names": ["deploy"],
        "bound_service_account_namespaces": [namespace],
        "token_policies": [name],
    });
    vault.write("auth/by-pod/role/deploy", &role.to_string());
    let dir = tempfile::tempdir().unwrap();
    let login = |account: &str| {
        let file = dir.path().join(account);
        std::fs::write(&file, token(account)).unwrap();
        scene.asker(&[
            ("VAULT_ROLE", "deploy"),
            ("VAULT_AUTH_PATH", "by-pod"),
            ("VAULT_K8S_TOKEN_FILE", file.to_str().unwrap()),
        ])
    };
    let reference = "vault:by-pod/team/db one#user";
    assert_eq!(login("deploy").get(reference).await, "root");
    let other = login("other").refusal(reference).await;
    assert_snapshot!(scene.shown(&other), @"
    could not log in to Vault at `http://VAULT` with the Pod's service account
    `http://VAULT/v1/auth/by-pod/login` answered 403: service account name not authorized
    hint: is the role allowed on `auth/by-pod`, and is the proof still valid?
    ");
}
