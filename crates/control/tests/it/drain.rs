//! Against a real API server of the test's own: a drain concerns the whole cluster.

use std::path::Path;
use std::time::Duration;

use control::stage::cluster::ClusterContext;
use control::stage::drain::{DrainProgress, run};
use drivers::process::Environment;
use model::stage::drain::DrainEnd;
use model::stage::kubernetes::{Kubeconfig, ObjectRef};
use serde_json::{Value, json};
use testkit::Kubernetes;

const NAMESPACE: &str = "shop";

fn fill(cluster: &Kubernetes) {
    let post = |path: &str, body: Value| cluster.post(path, &body.to_string());
    let core = format!("/api/v1/namespaces/{NAMESPACE}");
    let argo = format!("/apis/argoproj.io/v1alpha1/namespaces/{NAMESPACE}");
    post(
        "/api/v1/namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
    );
    post(
        &format!("{argo}/applications"),
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "app"}, "spec": {
            "project": "default", "destination": {}, "source": {"repoURL": "https://example.io/a.git"},
            "syncPolicy": {"automated": {"selfHeal": true}}}}),
    );
    post(
        &format!("{argo}/applicationsets"),
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": {"name": "set"}, "spec": {
            "generators": [], "template": {"metadata": {}, "spec": {"project": "default", "destination": {}}}}}),
    );
    post(
        &format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{NAMESPACE}/kustomizations"),
        json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "all"},
            "spec": {"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "all"}}}),
    );
    let service = |name: &str, kind: &str, finalizers: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "finalizers": finalizers},
            "spec": {"type": kind, "ports": [{"port": 443}]}})
    };
    let cleanup = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    post(
        &format!("{core}/services"),
        service("web", "LoadBalancer", cleanup),
    );
    post(
        &format!("{core}/services"),
        service("inner", "ClusterIP", json!([])),
    );
    post(
        &format!("/apis/gateway.networking.k8s.io/v1/namespaces/{NAMESPACE}/gateways"),
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "edge"}, "spec": {
            "gatewayClassName": "a", "listeners": [{"name": "web", "port": 443, "protocol": "TLS"}]}}),
    );
    post(
        &format!("/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses"),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "shop"}, "spec": {
            "defaultBackend": {"service": {"name": "web", "port": {"number": 443}}}}}),
    );
    post(
        &format!("/apis/helm.toolkit.fluxcd.io/v2/namespaces/{NAMESPACE}/helmreleases"),
        json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": "release"},
            "spec": {"interval": "10m", "chartRef": {"kind": "OCIRepository", "name": "chart"}}}),
    );
    // Its claim went before anybody drained; the disk did not.
    post(
        "/api/v1/persistentvolumes",
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "left"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": "disk.example.io", "volumeHandle": "left"}}}),
    );
    cluster.merge(
        "/api/v1/persistentvolumes/left/status",
        "cloud",
        r#"{"status": {"phase": "Released"}}"#,
    );
    for (name, policy) in [("disk", "Delete"), ("kept", "Retain")] {
        post(
            "/api/v1/persistentvolumes",
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": policy, "csi": {"driver": "disk.example.io", "volumeHandle": name}}}),
        );
        post(
            &format!("{core}/persistentvolumeclaims"),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {
                "accessModes": ["ReadWriteOnce"], "volumeName": name, "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}}}}),
        );
    }
    let set = post(
        &format!("/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
            "serviceName": "db", "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
    );
    let set: Value = serde_json::from_str(&set).unwrap();
    post(
        &format!("{core}/pods"),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-0", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": set["metadata"]["uid"], "controller": true}]},
            "spec": {"containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]}}),
    );
    let job = post(
        &format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs"),
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "backup"}, "spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
    );
    let job: Value = serde_json::from_str(&job).unwrap();
    post(
        &format!("{core}/pods"),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "backup-1", "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "backup", "uid": job["metadata"]["uid"], "controller": true}]},
            "spec": {"containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]}}),
    );
}

fn names(objects: &[ObjectRef]) -> Vec<String> {
    let mut names: Vec<String> = objects.iter().map(ToString::to_string).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_cluster_is_drained_and_what_remains_is_named() {
    let cluster = Kubernetes::own();
    fill(&cluster);
    let config = Kubeconfig::from_text(&cluster.kubeconfig()).unwrap();
    let env = Environment::new();
    let context = ClusterContext {
        source: Path::new("/"),
        env: &env,
        hidden: &[],
        cache: Path::new("/"),
        held: None,
    };
    // Nobody takes the finalizers off.
    let limit = Duration::from_secs(10);
    let report = run(&config, context, limit, &mut |_| {}).await;
    assert_eq!(report.end, DrainEnd::TimedOut);
    assert_eq!(
        names(&report.suspended),
        [
            "Application shop/app",
            "ApplicationSet shop/set",
            "HelmRelease shop/release",
            "Kustomization shop/all"
        ]
    );
    assert_eq!(
        names(&report.scaled_down),
        ["Job shop/backup", "StatefulSet shop/db"]
    );
    let suspended = |path: &str, field: &str| {
        let object: Value = serde_json::from_str(&cluster.get(path)).unwrap();
        object.pointer(field).cloned()
    };
    for (path, field) in [
        (
            "/apis/batch/v1/namespaces/shop/jobs/backup",
            "/spec/suspend",
        ),
        (
            "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/shop/kustomizations/all",
            "/spec/suspend",
        ),
        (
            "/apis/helm.toolkit.fluxcd.io/v2/namespaces/shop/helmreleases/release",
            "/spec/suspend",
        ),
    ] {
        assert_eq!(suspended(path, field), Some(true.into()), "{path}");
    }
    // Whoever reconciles by itself no longer does.
    let app = "/apis/argoproj.io/v1alpha1/namespaces/shop/applications/app";
    assert_eq!(suspended(app, "/spec/syncPolicy/automated/selfHeal"), None);
    assert_eq!(
        names(&report.deleted),
        [
            "Gateway shop/edge",
            "Ingress shop/shop",
            "PersistentVolumeClaim shop/disk",
            "Service shop/web"
        ]
    );
    let remaining: Vec<String> = report
        .remaining
        .iter()
        .map(|it| format!("{}: {}", it.object, it.finalizers.join(", ")))
        .collect();
    assert_eq!(
        remaining,
        [
            "PersistentVolume disk: kubernetes.io/pv-protection",
            "PersistentVolume left: kubernetes.io/pv-protection",
            "PersistentVolumeClaim shop/disk: kubernetes.io/pvc-protection",
            "Service shop/web: service.kubernetes.io/load-balancer-cleanup",
        ]
    );

    // Now somebody does, as soon as it is waited for.
    let free = |path: &str| cluster.merge(path, "cloud", r#"{"metadata": {"finalizers": null}}"#);
    let mut freed = false;
    let mut said = |progress: DrainProgress<'_>| {
        if matches!(progress, DrainProgress::Waiting(_)) && !freed {
            freed = true;
            free(&format!("/api/v1/namespaces/{NAMESPACE}/services/web"));
            free(&format!(
                "/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/disk"
            ));
            for disk in ["disk", "left"] {
                let disk = format!("/api/v1/persistentvolumes/{disk}");
                free(&disk);
                cluster.delete(&disk);
            }
        }
    };
    let report = run(&config, context, Duration::from_mins(2), &mut said).await;
    assert_eq!(report.end, DrainEnd::Empty, "{report:?}");
    assert!(report.suspended.is_empty(), "{report:?}");
    assert!(
        cluster
            .get(&format!("/api/v1/namespaces/{NAMESPACE}/services"))
            .contains("inner")
    );
    let claims = cluster.get(&format!(
        "/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
    ));
    assert!(
        claims.contains("kept"),
        "a disk that is kept keeps its claim"
    );
}

#[tokio::test]
async fn a_cluster_that_is_gone_is_said_to_be() {
    // A port that nobody listens on.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = format!(
        "{{current-context: a, contexts: [{{name: a, context: {{cluster: a}}}}], \
         clusters: [{{name: a, cluster: {{server: 'https://{address}'}}}}]}}"
    );
    let config = Kubeconfig::from_text(&config).unwrap();
    let env = Environment::new();
    let context = ClusterContext {
        source: Path::new("/"),
        env: &env,
        hidden: &[],
        cache: Path::new("/"),
        held: None,
    };
    let report = run(&config, context, Duration::from_secs(1), &mut |_| {}).await;
    let DrainEnd::Unreachable { why } = report.end else {
        panic!("{report:?}");
    };
    assert!(
        why.starts_with("could not ask whether the cluster is ready at "),
        "{why}"
    );
}

/// A kubeconfig whose user is this one, of a server that takes connections and says nothing.
fn of_user(listener: &std::net::TcpListener, user: &str) -> Kubeconfig {
    let address = listener.local_addr().unwrap();
    let config = format!(
        "{{current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
         clusters: [{{name: a, cluster: {{server: 'https://{address}'}}}}], users: [{{name: a, user: {{{user}}}}}]}}"
    );
    Kubeconfig::from_text(&config).unwrap()
}

async fn drained(config: &Kubeconfig, limit: Duration) -> DrainEnd {
    let env = Environment::from_iter([("PATH", "/usr/bin:/bin")]);
    let context = ClusterContext {
        source: Path::new("/"),
        env: &env,
        hidden: &[],
        cache: Path::new("/"),
        held: None,
    };
    run(config, context, limit, &mut |_| {}).await.end
}

#[tokio::test]
async fn a_cluster_whose_credential_plugin_hangs_is_not_gone() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let plugin =
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: sleep, args: ['600']}";
    let config = of_user(&listener, plugin);
    let end = drained(&config, Duration::from_secs(1)).await;
    let why =
        "the credential plugin `sleep` did not answer within 1 s; the cluster was not contacted";
    assert_eq!(end, DrainEnd::Failed { why: why.into() });
    // The server itself is as silent: that is what gone looks like.
    let end = drained(&of_user(&listener, "token: a"), Duration::from_secs(1)).await;
    let why = "nothing within 1 s";
    assert_eq!(end, DrainEnd::Unreachable { why: why.into() });
}

#[tokio::test]
async fn a_server_that_is_there_and_not_believed_is_not_gone() {
    let cluster = Kubernetes::start();
    let user = format!("token: {}", Kubernetes::TOKEN);
    let other = cluster.kubeconfig_of(", tls-server-name: example.io", &user);
    let config = Kubeconfig::from_text(&other).unwrap();
    let end = drained(&config, Duration::from_secs(1)).await;
    assert!(matches!(end, DrainEnd::Failed { .. }), "{end:?}");
}
