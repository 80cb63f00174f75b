//! What gates see of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use control::stage::gates::{GateContext, run};
use drivers::kubernetes::{AgentObjects, ClusterCheck, ClusterClients, ObjectCondition};
use drivers::process::Environment;
use model::base::diagnostic::Location;
use model::base::masking::Mask;
use model::base::secret::Secret;
use model::stage::ResolvedBlock;
use model::stage::gate::{Gate, ProbeQuery};
use serde_json::{Value, json};
use testkit::Kubernetes;

struct Scene {
    cluster: &'static Kubernetes,
    namespace: String,
    clusters: ClusterClients,
    kubeconfig: Secret,
}

impl Scene {
    fn new() -> Self {
        let cluster = Kubernetes::with_kinds();
        Self {
            cluster,
            namespace: cluster.namespace(),
            clusters: ClusterClients::new(Environment::new(), "/"),
            kubeconfig: Secret::new(cluster.kubeconfig()),
        }
    }

    /// Makes an object and gives it a status.
    fn make(&self, group: &str, plural: &str, object: &Value, status: &Value) {
        let path = format!("{group}/namespaces/{}/{plural}", self.namespace);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.cluster.post(&path, &object.to_string());
        let status = json!({"status": status}).to_string();
        // Argo CD's kinds have no status of its own.
        let place = if group.contains("argoproj") {
            ""
        } else {
            "/status"
        };
        self.cluster
            .merge(&format!("{path}/{name}{place}"), "test", &status);
    }

    async fn object(&self, kind: &str, name: &str, wanted: ObjectCondition) -> String {
        let looked = self
            .clusters
            .object(&self.kubeconfig, kind, Some(&self.namespace), name, &wanted)
            .await;
        self.told(&looked.unwrap())
    }

    async fn agent(&self, whose: AgentObjects, names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let looked = self
            .clusters
            .agent(&self.kubeconfig, whose, Some(&self.namespace), &names)
            .await;
        self.told(&looked.unwrap())
    }

    fn told(&self, look: &ClusterCheck) -> String {
        let mut text = String::new();
        for object in &look.objects {
            let mark = if object.is_well { "well" } else { "NOT" };
            let _ = writeln!(
                text,
                "{mark} {}: {} [{}]",
                object.object, object.seen, object.expected
            );
            // A server that has only just begun may repair its own table of addresses, and says so.
            let is_ours = |note: &&String| !note.contains("ClusterIPNotAllocated");
            for note in object.notes.iter().filter(is_ours) {
                let _ = writeln!(text, "    {note}");
            }
        }
        text.replace(&self.namespace, "NS")
    }

    async fn field(&self, object: &str, path: &str) -> Option<Value> {
        let object = object.replace("NS", &self.namespace);
        let path = path.parse().unwrap();
        let found = self.clusters.field(&self.kubeconfig, &object, &path).await;
        found.unwrap()
    }
}

fn condition(kind: &str, status: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "Test", "message": message, "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[tokio::test]
async fn certificates_gateways_and_load_balancers() {
    let scene = Scene::new();
    scene.make(
        "/apis/cert-manager.io/v1",
        "certificates",
        &json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "tls"},
            "spec": {"secretName": "tls", "dnsNames": ["example.io"], "issuerRef": {"name": "a"}}}),
        &json!({"conditions": [condition("Ready", "False", "waiting for the order")]}),
    );
    scene.make(
        "/apis/gateway.networking.k8s.io/v1",
        "gateways",
        &json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "edge"}, "spec": {
            "gatewayClassName": "a", "listeners": [{"name": "tls", "port": 443, "protocol": "TLS"}]}}),
        &json!({"listeners": [{"name": "tls", "attachedRoutes": 0, "supportedKinds": [], "conditions": [condition("Programmed", "True", "")]}]}),
    );
    scene.make(
        "/api/v1",
        "services",
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"type": "LoadBalancer",
            "ports": [{"port": 443}], "selector": {"app": "web"}}}),
        &json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}),
    );
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Warning", "count": 3,
        "reason": "Failed", "message": "the order is invalid", "involvedObject": {
            "kind": "Certificate", "name": "tls", "namespace": scene.namespace}});
    scene.cluster.post(
        &format!("/api/v1/namespaces/{}/events", scene.namespace),
        &event.to_string(),
    );
    let address = |ip: &str| ObjectCondition::Field {
        path: "status.loadBalancer.ingress[0].ip".parse().unwrap(),
        expect: ip.into(),
    };
    let mut told = scene
        .object(
            "Certificate",
            "tls",
            ObjectCondition::Condition("Ready".to_owned()),
        )
        .await;
    told += &scene
        .object("Gateway", "edge", ObjectCondition::Listener(443))
        .await;
    told += &scene
        .object("Gateway", "edge", ObjectCondition::Listener(8443))
        .await;
    told += &scene.object("svc", "web", address("192.0.2.7")).await;
    told += &scene.object("svc", "web", address("192.0.2.8")).await;
    told += &scene
        .object("Service", "nowhere", ObjectCondition::Present)
        .await;
    insta::assert_snapshot!(told, @r"
    NOT Certificate NS/tls: Ready=False (Test): waiting for the order [Ready=True]
        event of Certificate NS/tls: Warning Failed: the order is invalid (3 times)
    well Gateway NS/edge: Programmed=True (Test) [a listener on 443 that is Programmed]
    NOT Gateway NS/edge: it listens on 443 [a listener on 8443 that is Programmed]
    well Service NS/web: status.loadBalancer.ingress[0].ip = 192.0.2.7 [status.loadBalancer.ingress[0].ip = 192.0.2.7]
    NOT Service NS/web: status.loadBalancer.ingress[0].ip = 192.0.2.7 [status.loadBalancer.ingress[0].ip = 192.0.2.8]
    NOT Service NS/nowhere: it is not there [it is there]
    ");
    let found = scene
        .field("Service/NS/web", "status.loadBalancer.ingress[0].ip")
        .await;
    assert_eq!(found, Some("192.0.2.7".into()));
    assert_eq!(scene.field("Service/NS/web", "spec.nothing").await, None);
}

#[tokio::test]
async fn a_workload_comes_with_its_pods() {
    let scene = Scene::new();
    scene.make(
        "/apis/apps/v1",
        "deployments",
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"selector": {
            "matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
        &json!({"observedGeneration": 1, "conditions": [
            {"type": "Available", "status": "False", "reason": "Min", "message": "none is available"}]}),
    );
    scene.make(
        "/api/v1",
        "pods",
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        &json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false,
            "restartCount": 2, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}),
    );
    let told = scene
        .object(
            "Deployment",
            "web",
            ObjectCondition::Condition("Available".to_owned()),
        )
        .await;
    insta::assert_snapshot!(told, @r"
    NOT Deployment NS/web: Available=False (Min): none is available [Available=True]
        Pod NS/web-1: Pending
        container c: waiting ImagePullBackOff: no such image, restarted 2 times
    ");
}

#[tokio::test]
async fn values_of_secrets_are_compared_and_not_told() {
    let scene = Scene::new();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "marked-secret"}});
    scene.cluster.post(
        &format!("/api/v1/namespaces/{}/secrets", scene.namespace),
        &secret.to_string(),
    );
    let wanted = ObjectCondition::Field {
        path: "data.a".parse().unwrap(),
        expect: "b".into(),
    };
    let told = scene.object("Secret", "s", wanted).await;
    insta::assert_snapshot!(told, @"NOT Secret NS/s: another value [data.a = b]");
}

#[tokio::test]
async fn applications_and_sets_of_argo_cd() {
    let scene = Scene::new();
    let application = |name: &str, sync: &str, health: &str| {
        scene.make(
            "/apis/argoproj.io/v1alpha1",
            "applications",
            &json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": name}, "spec": {
                "project": "default", "destination": {}, "source": {"repoURL": "https://example.io/a.git"}}}),
            &json!({"sync": {"status": sync, "comparedTo": {"destination": {}, "source": {"repoURL": "a"}}},
                "health": {"status": health}, "resources": [
                    {"kind": "Deployment", "namespace": "web", "name": name, "status": sync,
                        "health": {"status": health, "message": "no image"}}]}),
        );
    };
    assert_eq!(
        scene.agent(AgentObjects::Argocd, &[]).await,
        "NOT *: nothing has a name like this [Synced, Healthy]\n"
    );
    application("web-dev", "Synced", "Healthy");
    application("web-prod", "Synced", "Degraded");
    assert_eq!(
        scene.agent(AgentObjects::Argocd, &["*-dev"]).await,
        "well Application NS/web-dev: Synced, Healthy [Synced, Healthy]\n"
    );
    let told = scene.agent(AgentObjects::Argocd, &["web-*", "api"]).await;
    insta::assert_snapshot!(told, @r"
    NOT api: nothing has a name like this [Synced, Healthy]
    well Application NS/web-dev: Synced, Healthy [Synced, Healthy]
    NOT Application NS/web-prod: Synced, Degraded [Synced, Healthy]
        Deployment web/web-prod: Synced Degraded no image
    ");
}

#[tokio::test]
async fn kustomizations_and_releases_of_flux() {
    let scene = Scene::new();
    scene.make(
        "/apis/kustomize.toolkit.fluxcd.io/v1",
        "kustomizations",
        &json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "all"},
            "spec": {"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "all"}}}),
        &json!({"observedGeneration": 1, "conditions": [condition("Ready", "True", "applied")]}),
    );
    scene.make(
        "/apis/helm.toolkit.fluxcd.io/v2",
        "helmreleases",
        &json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": "web"},
            "spec": {"interval": "10m", "chartRef": {"kind": "OCIRepository", "name": "web"}}}),
        &json!({"observedGeneration": 1, "conditions": [condition("Ready", "False", "upgrade failed")]}),
    );
    let told = scene.agent(AgentObjects::Flux, &[]).await;
    insta::assert_snapshot!(told, @r"
    well Kustomization NS/all: Ready=True (Test): applied [Ready=True]
    NOT HelmRelease NS/web: Ready=False (Test): upgrade failed [Ready=True]
    ");
}

/// From the block of a stack to the report of a gate.
#[tokio::test]
async fn gates_on_clusters_pass_and_fail_with_evidence() {
    let scene = Scene::new();
    scene.make(
        "/api/v1",
        "services",
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}}),
        &json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}),
    );
    let block = |kind: &str, name: &str, attrs: Value| {
        let mut attrs = attrs.as_object().unwrap().clone();
        attrs.insert("kubeconfig".to_owned(), scene.cluster.kubeconfig().into());
        attrs.insert("namespace".to_owned(), scene.namespace.clone().into());
        ResolvedBlock {
            kind: kind.to_owned(),
            name: name.to_owned(),
            each: None,
            attrs,
            blocks: Vec::new(),
            sensitive: BTreeSet::from(["kubeconfig".to_owned()]),
            at: Location::default(),
        }
    };
    let field = "status.loadBalancer.ingress[0].ip";
    let service = |name: &str, expect: &str| {
        let attrs = json!({"kind": "Service", "name": "web", "field": field, "expect": expect});
        block("kubernetes", name, attrs)
    };
    let asked = ProbeQuery::Kubernetes {
        object: format!("Service/{}/web", scene.namespace),
        field: field.to_owned(),
    };
    let mut equal = block(
        "equal",
        "reserved",
        json!({"values": ["192.0.2.7", asked.to_value()]}),
    );
    equal.attrs.shift_remove("namespace");
    let blocks = [
        service("address", "192.0.2.7"),
        service("other-address", "192.0.2.8"),
        block("argocd", "apps", json!({})),
        equal,
    ];
    let gates = Gate::read_all(&blocks).unwrap();
    let around = GateContext {
        dir: "/".into(),
        env: Environment::new(),
        mask: Mask::default(),
        once: true,
        skipped: BTreeMap::new(),
    };
    let (events, _heard) = tokio::sync::mpsc::unbounded_channel();
    let reports = run(gates, around, &events).await;
    let mut told = String::new();
    for report in &reports {
        let _ = writeln!(told, "{}: {}", report.name, report.verdict.brief());
    }
    let told = told.replace(&scene.namespace, "NS");
    insta::assert_snapshot!(told, @r"
    address: passed
    other-address: Service NS/web: status.loadBalancer.ingress[0].ip = 192.0.2.7
    apps: *: nothing has a name like this
    reserved: passed
    ");
    let kept = serde_json::to_string(&reports).unwrap();
    assert!(kept.contains(&scene.cluster.address()), "{kept}");
    assert!(!kept.contains(Kubernetes::TOKEN), "{kept}");
}
