//! Facts in a cluster: put, compared, withdrawn.

use std::collections::BTreeSet;
use std::path::Path;

use control::stage::cluster::ClusterContext;
use control::stage::sinks::{SinkDifference, SinkError, compare, put, withdraw};
use drivers::process::Environment;
use model::base::diagnostic::Location;
use model::stage::ResolvedBlock;
use model::stage::bootstrap::ObjectOutcome;
use model::stage::sink::Sink;
use serde_json::{Map, Value, json};
use testkit::Kubernetes;

fn sink(kind: &str, namespace: &str) -> Sink {
    let attrs = json!({"kubeconfig": Kubernetes::start().kubeconfig(), "namespace": namespace, "name": "facts"});
    Sink::read(&ResolvedBlock {
        kind: kind.to_owned(),
        name: String::new(),
        each: None,
        attrs: attrs.as_object().unwrap().clone(),
        blocks: Vec::new(),
        sensitive: BTreeSet::new(),
        at: Location::default(),
    })
    .unwrap()
}

fn facts(address: &str) -> Map<String, Value> {
    let facts = json!({"cluster_name": "prod", "azure": {"address": address}});
    facts.as_object().unwrap().clone()
}

fn said(differences: &[SinkDifference]) -> Vec<String> {
    let said = differences.iter().map(|difference| match difference {
        SinkDifference::Missing => "missing".to_owned(),
        SinkDifference::Field(field) => field.to_string(),
    });
    said.collect()
}

struct Scene {
    cluster: &'static Kubernetes,
    namespace: String,
    env: Environment,
}

impl Scene {
    fn new() -> Self {
        let cluster = Kubernetes::start();
        Self {
            cluster,
            namespace: cluster.namespace(),
            env: Environment::new(),
        }
    }

    fn context(&self) -> ClusterContext<'_> {
        ClusterContext {
            source: Path::new("/"),
            env: &self.env,
            hidden: &[],
            cache: Path::new("/"),
            held: None,
        }
    }

    fn path(&self, kind: &str) -> String {
        format!("/api/v1/namespaces/{}/{kind}/facts", self.namespace)
    }

    async fn put(
        &self,
        sink: &Sink,
        facts: &Map<String, Value>,
    ) -> Result<ObjectOutcome, SinkError> {
        put(sink, facts, &BTreeSet::new(), false, self.context()).await
    }

    async fn compare(&self, sink: &Sink, facts: &Map<String, Value>) -> Vec<SinkDifference> {
        let compared = compare(sink, facts, &BTreeSet::new(), self.context()).await;
        compared.unwrap()
    }
}

#[tokio::test]
async fn facts_are_put_once_and_a_foreign_change_stops_them() {
    let scene = Scene::new();
    let sink = sink("configmap", &scene.namespace);
    let (old, new) = (facts("192.0.2.1"), facts("192.0.2.2"));
    assert_eq!(scene.compare(&sink, &old).await, [SinkDifference::Missing]);
    assert_eq!(
        scene.put(&sink, &old).await.unwrap(),
        ObjectOutcome::Created
    );
    assert_eq!(scene.put(&sink, &old).await.unwrap(), ObjectOutcome::Same);
    assert_eq!(scene.compare(&sink, &old).await, []);
    assert_eq!(
        said(&scene.compare(&sink, &new).await),
        ["azure_address: \"192.0.2.1\" → \"192.0.2.2\""]
    );
    assert_eq!(
        scene.put(&sink, &new).await.unwrap(),
        ObjectOutcome::Changed
    );

    let change = r#"{"data": {"azure_address": "198.51.100.1"}}"#;
    scene
        .cluster
        .merge(&scene.path("configmaps"), "kubectl-edit", change);
    let err = scene.put(&sink, &new).await.unwrap_err();
    assert_eq!(
        err.to_string(),
        format!(
            "ConfigMap {}/facts was changed by kubectl-edit: data.azure_address",
            scene.namespace
        )
    );
    let taken = put(&sink, &new, &BTreeSet::new(), true, scene.context()).await;
    assert!(
        matches!(taken, Ok(ObjectOutcome::TakenBack { .. })),
        "{taken:?}"
    );
    assert!(withdraw(&sink, scene.context()).await.unwrap());
    assert!(!withdraw(&sink, scene.context()).await.unwrap());
}

#[tokio::test]
async fn a_fact_that_is_none_any_more_goes() {
    let scene = Scene::new();
    let sink = sink("secret", &scene.namespace);
    scene.put(&sink, &facts("192.0.2.1")).await.unwrap();
    let mut fewer = facts("192.0.2.1");
    fewer.remove("azure");
    assert_eq!(
        said(&scene.compare(&sink, &fewer).await),
        ["azure_address: (sensitive) → nothing"]
    );
    scene.put(&sink, &fewer).await.unwrap();
    assert_eq!(scene.compare(&sink, &fewer).await, []);
    let live: Value = serde_json::from_str(&scene.cluster.get(&scene.path("secrets"))).unwrap();
    assert_eq!(live["data"], json!({"cluster_name": "cHJvZA=="}));
}

#[tokio::test]
async fn a_cluster_that_argo_cd_knows_keeps_its_connection() {
    let scene = Scene::new();
    let sink = sink("argocd-cluster", &scene.namespace);
    let known = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "facts", "labels": {
        "argocd.argoproj.io/secret-type": "cluster"}}, "stringData": {"name": "edge", "server": "https://edge"}});
    let path = format!(
        "/api/v1/namespaces/{}/secrets?fieldManager=argocd",
        scene.namespace
    );
    scene.cluster.post(&path, &known.to_string());
    assert_eq!(
        scene.put(&sink, &facts("192.0.2.1")).await.unwrap(),
        ObjectOutcome::Changed
    );
    assert_eq!(
        scene.put(&sink, &facts("192.0.2.1")).await.unwrap(),
        ObjectOutcome::Same
    );
    let live: Value = serde_json::from_str(&scene.cluster.get(&scene.path("secrets"))).unwrap();
    assert_eq!(live["data"]["server"], "aHR0cHM6Ly9lZGdl");
    assert_eq!(
        live["metadata"]["annotations"]["azure_address"],
        "192.0.2.1"
    );
    assert_eq!(live["metadata"]["labels"]["cluster_name"], "prod");

    assert!(withdraw(&sink, scene.context()).await.unwrap());
    let live: Value = serde_json::from_str(&scene.cluster.get(&scene.path("secrets"))).unwrap();
    assert_eq!(live["data"]["server"], "aHR0cHM6Ly9lZGdl");
    assert_eq!(live["metadata"]["annotations"], Value::Null);
    assert_eq!(
        live["metadata"]["labels"],
        json!({"argocd.argoproj.io/secret-type": "cluster"})
    );
}

#[tokio::test]
async fn a_cluster_that_argo_cd_does_not_know_is_added() {
    let scene = Scene::new();
    let sink = sink("argocd-cluster", &scene.namespace);
    assert_eq!(
        scene.put(&sink, &facts("192.0.2.1")).await.unwrap(),
        ObjectOutcome::Created
    );
    assert_eq!(
        scene.put(&sink, &facts("192.0.2.1")).await.unwrap(),
        ObjectOutcome::Same
    );
    let live: Value = serde_json::from_str(&scene.cluster.get(&scene.path("secrets"))).unwrap();
    assert_eq!(
        live["data"]["server"],
        "aHR0cHM6Ly9rdWJlcm5ldGVzLmRlZmF1bHQuc3Zj"
    );
}
