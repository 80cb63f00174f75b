//! The client itself: credentials, kinds, conflicts, limits.

use std::path::Path;

use drivers::kubernetes::{
    ApplyOptions, Conflict, KubernetesClient, KubernetesError, ObjectFilter,
};
use drivers::process::Environment;
use model::base::error::Explain;
use model::stage::kubernetes::{Kubeconfig, ObjectRef};
use serde_json::{Value, json};
use testkit::{Kubernetes, write_program};

async fn client(kubeconfig: &str) -> KubernetesClient {
    let config = Kubeconfig::from_text(kubeconfig).unwrap();
    KubernetesClient::new(config, &Environment::new(), "/")
        .await
        .unwrap()
}

fn config_map(namespace: &str, name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data})
}

const FOR_REAL: ApplyOptions = ApplyOptions {
    dry_run: false,
    force: false,
};

#[tokio::test]
async fn every_kind_of_credential_is_shown() {
    let cluster = Kubernetes::start();
    let token = format!("token: {}", Kubernetes::TOKEN);
    let users = [
        ("", token.clone()),
        ("", cluster.certificate_user()),
        (", tls-server-name: kubernetes.default.svc", token.clone()),
        (", insecure-skip-tls-verify: true", token.clone()),
    ];
    for (more, user) in users {
        let client = client(&cluster.kubeconfig_of(more, &user)).await;
        let resource = client.resource("Namespace").await.unwrap();
        let found = client.get(&resource, None, "kube-system").await.unwrap();
        assert!(found.is_some(), "{more}");
        assert_eq!(client.version().await.unwrap(), "v1.36.3");
    }
}

#[tokio::test]
async fn a_server_with_another_name_is_not_believed() {
    let cluster = Kubernetes::start();
    let user = format!("token: {}", Kubernetes::TOKEN);
    let other = cluster.kubeconfig_of(", tls-server-name: example.io", &user);
    let err = client(&other).await.version().await.unwrap_err();
    assert!(matches!(err, KubernetesError::Send { .. }), "{err:?}");
    assert!(!format!("{err:?}").contains(Kubernetes::TOKEN));
}

#[tokio::test]
async fn who_may_not_is_told_so() {
    let cluster = Kubernetes::start();
    let user = format!("token: {}", Kubernetes::POWERLESS_TOKEN);
    let powerless = client(&cluster.kubeconfig_of("", &user)).await;
    let secrets = powerless.resource("Secret").await.unwrap();
    let err = powerless
        .list(&secrets, ObjectFilter::default())
        .await
        .unwrap_err();
    assert_eq!(
        err.hint().as_deref(),
        Some("the user of the kubeconfig lacks this permission")
    );
    let stranger = client(&cluster.kubeconfig_of("", "token: marked-secret")).await;
    let err = stranger.resource("Secret").await.unwrap_err();
    assert_eq!(
        err.to_string(),
        "could not ask which kinds the cluster has: Unauthorized"
    );
    assert!(!format!("{err:?}").contains("marked-secret"));
}

#[tokio::test]
async fn a_plugin_is_asked_again_when_its_credential_is_refused() {
    let cluster = Kubernetes::start();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("bin/login");
    // Stale at first; then good, and good for a while.
    write_program(
        &program,
        &format!(
            "#!/bin/sh\necho \"$WHO $KUBERNETES_EXEC_INFO\" >> asked\n\
             if [ \"$(wc -l < asked)\" = 1 ]; then token=stale; else token={}; fi\n\
             printf '{{\"status\": {{\"token\": \"%s\", \"expirationTimestamp\": \"2999-01-01T00:00:00Z\"}}}}' \"$token\"\n",
            Kubernetes::TOKEN
        ),
    );
    let user = "exec: {apiVersion: client.authentication.k8s.io/v1, command: login, provideClusterInfo: true, \
                env: [{name: WHO, value: me}]}";
    let config = Kubeconfig::from_text(&cluster.kubeconfig_of("", user)).unwrap();
    let path = format!("{}:/usr/bin:/bin", dir.path().join("bin").display());
    let env: Environment = [("PATH", path)].into_iter().collect();
    let client = KubernetesClient::new(config, &env, dir.path())
        .await
        .unwrap();
    for _ in 0..2 {
        client.resource("Namespace").await.unwrap();
        client.resource("Nothing").await.unwrap_err();
    }
    let asked = std::fs::read_to_string(dir.path().join("asked")).unwrap();
    assert_eq!(asked.lines().count(), 2, "{asked}");
    assert!(asked.starts_with("me {"), "{asked}");
    assert!(asked.contains(&cluster.address()), "{asked}");
}

#[tokio::test]
async fn a_plugin_that_fails_says_why_and_not_what() {
    let cluster = Kubernetes::start();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("login");
    write_program(
        &program,
        "#!/bin/sh\necho marked-secret\necho 'please log in' >&2\nexit 3\n",
    );
    let with = async |command: &Path| {
        let user = format!(
            "exec: {{apiVersion: client.authentication.k8s.io/v1, command: {}, installHint: get it}}",
            command.display()
        );
        let client = client(&cluster.kubeconfig_of("", &user)).await;
        client.version().await.unwrap_err()
    };
    let err = with(&program).await;
    let expected = format!(
        "the credential plugin `{}` failed: please log in",
        program.display()
    );
    assert_eq!(err.to_string(), expected);
    let missing = with(Path::new("no-such-login")).await;
    assert_eq!(
        missing.to_string(),
        "the credential plugin `no-such-login` is not on PATH"
    );
    assert_eq!(missing.hint().as_deref(), Some("get it"));
}

#[tokio::test]
async fn kinds_are_found_by_the_names_people_use() {
    let cluster = Kubernetes::with_kinds();
    let client = client(&cluster.kubeconfig()).await;
    let cases = [
        ("Service", "v1", "Service"),
        ("deploy", "apps/v1", "Deployment"),
        ("events", "v1", "Event"),
        ("certificate", "cert-manager.io/v1", "Certificate"),
        (
            "Gateway.gateway.networking.k8s.io",
            "gateway.networking.k8s.io/v1",
            "Gateway",
        ),
        ("Application", "argoproj.io/v1alpha1", "Application"),
        (
            "kustomizations.kustomize.toolkit.fluxcd.io",
            "kustomize.toolkit.fluxcd.io/v1",
            "Kustomization",
        ),
        (
            "HorizontalPodAutoscaler.v1.autoscaling",
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
        ),
    ];
    for (name, version, kind) in cases {
        let found = client.resource(name).await.unwrap();
        assert_eq!(
            (found.api_version().as_str(), found.kind.as_str()),
            (version, kind),
            "{name}"
        );
    }
    let err = client.resource("Nonsense").await.unwrap_err();
    assert_eq!(err.to_string(), "the cluster has no kind `Nonsense`");
}

#[tokio::test]
async fn what_others_hold_is_named_and_not_taken() {
    let cluster = Kubernetes::start();
    let (client, namespace) = (client(&cluster.kubeconfig()).await, cluster.namespace());
    let object = |value: &str| config_map(&namespace, "a", &json!({"a": value, "b": "1"}));
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/a");

    let dry = ApplyOptions {
        dry_run: true,
        ..FOR_REAL
    };
    client.apply(&object("1"), dry).await.unwrap();
    let identity = ObjectRef::of(&object("1")).unwrap();
    assert_eq!(client.get_ref(&identity).await.unwrap(), None);
    client.apply(&object("1"), FOR_REAL).await.unwrap();
    cluster.merge(&path, "argocd-controller", r#"{"data": {"a": "2"}}"#);

    let err = client.apply(&object("1"), FOR_REAL).await.unwrap_err();
    assert_eq!(
        err.to_string(),
        format!("could not apply ConfigMap {namespace}/a: `data.a` is held by `argocd-controller`")
    );
    let KubernetesError::Conflict { conflicts, .. } = err else {
        panic!("no conflict");
    };
    assert_eq!(
        conflicts,
        [Conflict {
            manager: "argocd-controller".to_owned(),
            field: "data.a".to_owned()
        }]
    );
    let force = ApplyOptions {
        force: true,
        ..FOR_REAL
    };
    let forced = client.apply(&object("1"), force).await.unwrap();
    assert_eq!(forced["data"]["a"], "1");
    assert!(client.delete(&identity).await.unwrap());
    assert!(!client.delete(&identity).await.unwrap());
}

#[tokio::test]
async fn refusals_about_secrets_do_not_quote_them() {
    let cluster = Kubernetes::start();
    let (client, namespace) = (client(&cluster.kubeconfig()).await, cluster.namespace());
    let object = |kind: &str| {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {
            "name": "a", "namespace": namespace, "labels": {"a": "marked secret"}}})
    };
    let err = client
        .apply(&object("ConfigMap"), FOR_REAL)
        .await
        .unwrap_err();
    assert!(err.to_string().contains("marked secret"), "{err}");
    let err = client.apply(&object("Secret"), FOR_REAL).await.unwrap_err();
    assert_eq!(
        err.to_string(),
        format!(
            "could not apply Secret {namespace}/a: it answered 422 Invalid about metadata.labels"
        )
    );
    assert!(!format!("{err:?}").contains("marked secret"));
}

#[tokio::test]
async fn long_lists_come_in_pages_that_fit() {
    let cluster = Kubernetes::start();
    let (client, namespace) = (client(&cluster.kubeconfig()).await, cluster.namespace());
    for index in 0..12 {
        let data = json!({"a": "x".repeat(2000)});
        let object = config_map(&namespace, &format!("c{index:02}"), &data);
        client.apply(&object, FOR_REAL).await.unwrap();
    }
    let resource = client.resource("ConfigMap").await.unwrap();
    let among = ObjectFilter {
        namespace: Some(&namespace),
        ..ObjectFilter::default()
    };
    // Ten do not fit, one does.
    let narrow = client.with_limit(6000);
    let found = narrow.list(&resource, among).await.unwrap();
    assert_eq!(found.len(), 12);
    assert_eq!(
        ObjectRef::of(&found[3]).unwrap().to_string(),
        format!("ConfigMap {namespace}/c03")
    );
    let err = client
        .with_limit(100)
        .list(&resource, among)
        .await
        .unwrap_err();
    assert_eq!(
        err.to_string(),
        "could not list configmaps: the answer has more than 100 bytes"
    );
}
