//! Bootstrap, step by step and again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use control::stage::bootstrap::{BootstrapProgress, ConflictPolicy, run};
use control::stage::cluster::ClusterContext;
use drivers::process::Environment;
use drivers::snapshot::sha256;
use model::base::diagnostic::Location;
use model::stage::ResolvedBlock;
use model::stage::bootstrap::{Bootstrap, BootstrapReport, ObjectOutcome};
use serde_json::{Value, json};
use testkit::{Kubernetes, write_program};

fn block(kind: &str, name: &str, attrs: Value) -> ResolvedBlock {
    let Value::Object(attrs) = attrs else {
        panic!("no object");
    };
    ResolvedBlock {
        kind: kind.to_owned(),
        name: name.to_owned(),
        each: None,
        attrs,
        blocks: Vec::new(),
        sensitive: BTreeSet::new(),
        at: Location::default(),
    }
}

struct Scene {
    cluster: &'static Kubernetes,
    namespace: String,
    source: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let cluster = Kubernetes::with_kinds();
        Self {
            cluster,
            namespace: cluster.namespace(),
            source: tempfile::tempdir().unwrap(),
        }
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.source.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// A small agent, which consists of two objects.
    fn install(&self, image: &str) -> ResolvedBlock {
        let manifest = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: one}}\ndata: {{image: {image}, port: '80'}}\n---\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: two}}\ndata: {{a: b}}\n"
        );
        self.write("install.yaml", &manifest);
        block(
            "argocd",
            "",
            json!({
                "kubeconfig": self.cluster.kubeconfig(),
                "version": "v3.5.6",
                "namespace": self.namespace,
                "manifests": ["install.yaml"],
                "digest": format!("sha256:{}", sha256(manifest.as_bytes())),
                "timeout": "60s",
            }),
        )
    }

    fn path(&self, kind: &str, name: &str) -> String {
        format!("/api/v1/namespaces/{}/{kind}/{name}", self.namespace)
    }

    fn get(&self, kind: &str, name: &str) -> Value {
        serde_json::from_str(&self.cluster.get(&self.path(kind, name))).unwrap()
    }

    /// Something that is rolled out, so that the agent counts as running.
    fn running_deployment(&self) {
        self.cluster.roll_out_an_agent(&self.namespace);
    }

    async fn run(&self, block: &ResolvedBlock, manner: ConflictPolicy) -> BootstrapReport {
        let env: Environment = [("PATH", std::env::var("PATH").unwrap())]
            .into_iter()
            .collect();
        self.run_in(block, manner, &env).await
    }

    async fn run_in(
        &self,
        block: &ResolvedBlock,
        manner: ConflictPolicy,
        env: &Environment,
    ) -> BootstrapReport {
        let bootstrap = Bootstrap::read(block).unwrap();
        let context = ClusterContext {
            source: self.source.path(),
            env,
            hidden: &[],
            cache: self.source.path(),
            held: None,
        };
        run(&bootstrap, context, manner, &mut |_: BootstrapProgress<
            '_,
        >| {})
        .await
    }
}

/// Each step in a line, without what differs from run to run.
fn told(report: &BootstrapReport) -> String {
    let line = |step: &model::stage::bootstrap::StepReport| match &step.end {
        model::stage::bootstrap::StepEnd::Done => format!("{}: {}\n", step.title, step.brief()),
        model::stage::bootstrap::StepEnd::Failed { why, .. } => {
            format!("{}: FAILED {why}\n", step.title)
        }
    };
    report.steps.iter().map(line).collect()
}

fn outcome(report: &BootstrapReport, name: &str) -> ObjectOutcome {
    let mut objects = report.steps.iter().flat_map(|step| &step.objects);
    let found = objects.find(|object| object.object.name == name);
    found.map_or(ObjectOutcome::Same, |found| found.outcome.clone())
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let scene = Scene::new();
    let mut install = scene.install("v1");
    install.blocks.push(block(
        "secret",
        "sops-age",
        json!({"namespace": scene.namespace, "data": {"age.agekey": "marked-secret"}}),
    ));
    scene.running_deployment();
    let first = scene.run(&install, ConflictPolicy::Yield).await;
    let secret = scene.get("secrets", "sops-age");
    assert_eq!(secret["data"]["age.agekey"], "bWFya2VkLXNlY3JldA==");
    assert!(first.has_changed());
    let before = (scene.get("configmaps", "one"), secret);

    let second = scene.run(&install, ConflictPolicy::Yield).await;
    let told = told(&second)
        .replace(&scene.cluster.address(), "SERVER")
        .replace(&scene.namespace, "NS");
    insta::assert_snapshot!(told, @r"
    wait for the API: v1.36.3 at SERVER
    create namespaces: 1 as they were
    put secrets: 1 as they were
    install Argo CD v3.5.6: 2 as they were
    wait for Argo CD: Deployment NS/agent: 1 of 1 ready, 1 up to date
    ");
    assert!(!second.has_changed());
    let after = (
        scene.get("configmaps", "one"),
        scene.get("secrets", "sops-age"),
    );
    assert_eq!(before, after, "not even their bookkeeping");
    let stored = serde_json::to_string(&(first, second)).unwrap();
    assert!(
        !stored.contains("marked-secret") && !stored.contains("bWFya2Vk"),
        "{stored}"
    );
}

#[tokio::test]
async fn what_gitops_has_taken_over_is_left_to_it() {
    let scene = Scene::new();
    scene.running_deployment();
    scene.run(&scene.install("v1"), ConflictPolicy::Yield).await;
    let taken = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"image": "v2"}});
    scene.cluster.apply_as(
        &scene.path("configmaps", "one"),
        "argocd-controller",
        &taken.to_string(),
    );
    scene.cluster.delete(&scene.path("configmaps", "two"));

    let again = scene.run(&scene.install("v3"), ConflictPolicy::Yield).await;
    assert!(again.is_done(), "{again:?}");
    assert!(!again.has_changed(), "{again:?}");
    assert_eq!(
        outcome(&again, "one").to_string(),
        "handed over to argocd-controller, which holds `data.image`"
    );
    assert_eq!(
        outcome(&again, "two").to_string(),
        "not there, left to argocd-controller"
    );
    assert_eq!(again.handed_over().count(), 2);
    assert_eq!(scene.get("configmaps", "one")["data"]["image"], "v2");

    let back = scene
        .run(&scene.install("v3"), ConflictPolicy::Reinstall)
        .await;
    assert_eq!(
        outcome(&back, "one").to_string(),
        "taken back from argocd-controller: `data.image`"
    );
    assert_eq!(outcome(&back, "two"), ObjectOutcome::Created);
    assert_eq!(scene.get("configmaps", "one")["data"]["image"], "v3");
}

#[tokio::test]
async fn an_edit_by_hand_holds_up_only_what_was_edited() {
    let scene = Scene::new();
    scene.running_deployment();
    scene.run(&scene.install("v1"), ConflictPolicy::Yield).await;
    scene.cluster.merge(
        &scene.path("configmaps", "one"),
        "kubectl-edit",
        r#"{"data": {"image": "mine"}}"#,
    );
    scene.cluster.delete(&scene.path("configmaps", "two"));
    let mut again = scene.install("v2");
    again.attrs.insert("adopt".to_owned(), true.into());
    let report = scene.run(&again, ConflictPolicy::Yield).await;
    assert_eq!(
        outcome(&report, "one").to_string(),
        "handed over to kubectl-edit, which holds `data.image`"
    );
    assert_eq!(outcome(&report, "two"), ObjectOutcome::Created);
}

#[tokio::test]
async fn adopting_moves_the_fields_and_nothing_else() {
    let scene = Scene::new();
    scene.running_deployment();
    let helm = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one",
        "labels": {"app.kubernetes.io/managed-by": "Helm"}}, "data": {"image": "v1", "port": "80", "extra": "kept"}});
    let path = format!(
        "/api/v1/namespaces/{}/configmaps?fieldManager=helm",
        scene.namespace
    );
    scene.cluster.post(&path, &helm.to_string());
    // As it is, it needs no adopting.
    let left = scene.run(&scene.install("v2"), ConflictPolicy::Yield).await;
    assert_eq!(
        outcome(&left, "one").to_string(),
        "handed over to helm, which holds `data.image`"
    );
    let mut adopting = scene.install("v1");
    adopting.attrs.insert("adopt".to_owned(), true.into());
    let before = scene.get("configmaps", "one");
    let report = scene.run(&adopting, ConflictPolicy::Yield).await;
    assert_eq!(outcome(&report, "one").to_string(), "adopted from helm");
    let after = scene.get("configmaps", "one");
    assert_eq!(before["data"], after["data"]);
    assert_eq!(before["metadata"]["labels"], after["metadata"]["labels"]);
    let managers: Vec<&str> = after["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].as_str().unwrap())
        .collect();
    assert_eq!(managers, ["terrane"]);

    // From now on it is ours to change, and only what the manifest says.
    let mut next = scene.install("v2");
    next.attrs.insert("adopt".to_owned(), true.into());
    let report = scene.run(&next, ConflictPolicy::Yield).await;
    assert_eq!(outcome(&report, "one"), ObjectOutcome::Changed);
    let data = &scene.get("configmaps", "one")["data"];
    assert_eq!(*data, json!({"image": "v2", "port": "80", "extra": "kept"}));
}

#[tokio::test]
async fn what_is_installed_is_pinned() {
    let scene = Scene::new();
    let mut install = scene.install("v1");
    install.attrs.insert("digest".to_owned(), Value::Null);
    let report = scene.run(&install, ConflictPolicy::Yield).await;
    let failed = serde_json::to_value(report.steps.last().unwrap()).unwrap();
    assert_eq!(
        failed["why"],
        "the manifests of Argo CD are not pinned by a digest"
    );
    let hint = failed["hint"].as_str().unwrap();
    let digest = hint.split('"').nth(1).unwrap().to_owned();
    install
        .attrs
        .insert("digest".to_owned(), digest.clone().into());
    scene.running_deployment();
    assert!(scene.run(&install, ConflictPolicy::Yield).await.is_done());

    scene.write(
        "install.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: evil}\n",
    );
    let report = scene.run(&install, ConflictPolicy::Yield).await;
    let (_, why) = report.failure().unwrap();
    assert!(
        why.starts_with("Argo CD would be installed from `sha256:"),
        "{why}"
    );
    assert!(why.ends_with(&format!("not from `{digest}`")), "{why}");
}

#[tokio::test]
async fn a_release_that_was_fetched_before_needs_no_network() {
    let scene = Scene::new();
    scene.running_deployment();
    let mut install = scene.install("v1");
    let digest = install.attrs["digest"].as_str().unwrap().to_owned();
    let manifest = fs::read_to_string(scene.source.path().join("install.yaml")).unwrap();
    install.attrs.shift_remove("manifests");
    scene.write(
        &format!("manifests/{}.yaml", digest.replace(':', "-")),
        &manifest,
    );
    let report = scene.run(&install, ConflictPolicy::Yield).await;
    assert!(report.is_done(), "{report:?}");
    assert_eq!(outcome(&report, "one"), ObjectOutcome::Created);
}

#[tokio::test]
async fn all_of_argo_cd_is_installed_from_its_own_manifest() {
    let scene = Scene::new();
    let manifest = fs::read_to_string(Kubernetes::argocd_manifest()).unwrap();
    let mut install = scene.install("v1");
    scene.write("install.yaml", &manifest);
    let digest = format!("sha256:{}", sha256(manifest.as_bytes()));
    install.attrs.insert("digest".to_owned(), digest.into());
    // Nobody runs its pods, so only the first wait may end it.
    install.attrs.insert("timeout".to_owned(), "45s".into());
    let bootstrap = Bootstrap::read(&install).unwrap();
    let env = Environment::new();
    let context = ClusterContext {
        source: scene.source.path(),
        env: &env,
        hidden: &[],
        cache: scene.source.path(),
        held: None,
    };
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let mut tell = move |progress: BootstrapProgress<'_>| {
        let line = match progress {
            BootstrapProgress::Ended(step) => format!("{}: {}", step.title, step.brief()),
            BootstrapProgress::Seen(step, seen) => format!("{step}: {seen}"),
            BootstrapProgress::Began(_) => return,
        };
        let _ = said.send(line);
    };
    // Dropping the future ends it.
    let mut lines = Vec::new();
    tokio::select! {
        report = run(&bootstrap, context, ConflictPolicy::Yield, &mut tell) => panic!("{report:?}"),
        () = async {
            while let Some(line) = heard.recv().await {
                lines.push(line);
                if lines.last().is_some_and(|line| line.starts_with("wait for the agent")) {
                    return;
                }
            }
        } => {}
    }
    let installed = lines
        .iter()
        .find(|line| line.starts_with("install"))
        .unwrap();
    // Its kinds are there already, for other tests.
    assert!(installed.contains("created"), "{lines:?}");
    let waiting = lines.last().unwrap();
    let expected = "its controller has not looked at it yet, and 6 more";
    assert!(waiting.ends_with(expected), "{waiting}");
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", scene.namespace);
    assert!(scene.cluster.get(&path).contains("argocd-repo-server"));
}

#[tokio::test]
async fn root_objects_are_waited_for() {
    let scene = Scene::new();
    scene.running_deployment();
    let mut flux = scene.install("v1");
    "flux".clone_into(&mut flux.kind);
    flux.attrs.insert("root".to_owned(), json!(["root"]));
    scene.write(
        "root/sync.yaml",
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: all}\n\
         spec: {interval: 10m, prune: true, sourceRef: {kind: GitRepository, name: all}}\n",
    );
    let path = format!(
        "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{}/kustomizations/all/status",
        scene.namespace
    );
    let ready = |status: &str, message: &str| {
        json!({"status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": status,
            "reason": "Test", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
        .to_string()
    };
    flux.attrs.insert("timeout".to_owned(), "1s".into());
    let report = scene.run(&flux, ConflictPolicy::Yield).await;
    let (step, why) = report.failure().unwrap();
    assert_eq!(step.title, "wait for the root objects");
    assert!(why.ends_with("/all: it has no conditions yet"), "{why}");

    scene.cluster.merge(
        &path,
        "kustomize-controller",
        &ready("False", "no such path"),
    );
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Warning",
        "reason": "ArtifactFailed", "message": "source is not there", "involvedObject": {
            "kind": "Kustomization", "name": "all", "namespace": scene.namespace}});
    scene.cluster.post(
        &format!("/api/v1/namespaces/{}/events", scene.namespace),
        &event.to_string(),
    );
    let report = scene.run(&flux, ConflictPolicy::Yield).await;
    let notes = report
        .failure()
        .unwrap()
        .0
        .notes
        .join("\n")
        .replace(&scene.namespace, "NS");
    insta::assert_snapshot!(notes, @r"
    Kustomization NS/all: Ready=False (Test): no such path
    event of Kustomization NS/all: Warning ArtifactFailed: source is not there
    ");

    scene
        .cluster
        .merge(&path, "kustomize-controller", &ready("True", "applied"));
    flux.attrs.insert("timeout".to_owned(), "60s".into());
    let report = scene.run(&flux, ConflictPolicy::Yield).await;
    assert!(report.is_done(), "{report:?}");
    assert!(!report.has_changed(), "{report:?}");
}

#[tokio::test]
async fn a_command_sees_its_environment_and_hides_it() {
    let scene = Scene::new();
    write_program(
        &scene.source.path().join("step.sh"),
        "#!/bin/sh\necho \"nodes $NODES, token $TOKEN\"\ngrep -c token: \"$KUBECONFIG\"\necho \"$KUBECONFIG\" > where\nexit $CODE\n",
    );
    let step = |code: &str| {
        block(
            "command",
            "",
            json!({"run": ["./step.sh"], "kubeconfig": scene.cluster.kubeconfig(),
                "env": {"NODES": 3, "TOKEN": "marked-secret", "CODE": code}}),
        )
    };
    let report = scene.run(&step("0"), ConflictPolicy::Yield).await;
    assert!(report.is_done(), "{report:?}");
    assert_eq!(
        report.steps[1].notes,
        [
            "`./step.sh` ended with exit code 0",
            "nodes 3, token (secret)",
            "1"
        ]
    );
    let place = fs::read_to_string(scene.source.path().join("where")).unwrap();
    assert!(!Path::new(place.trim()).exists(), "{place} is still there");

    let report = scene.run(&step("7"), ConflictPolicy::Yield).await;
    let (_, why) = report.failure().unwrap();
    assert_eq!(why, "`./step.sh` ended with exit code 7");
}

#[tokio::test]
async fn charts_and_kustomizations_are_rendered_by_what_is_there() {
    let scene = Scene::new();
    scene.running_deployment();
    scene.write("chart/Chart.yaml", "name: agent\n");
    scene.write("overlay/kustomization.yaml", "resources: []\n");
    scene.write("values.yaml", "a: b\n");
    let rendered = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rendered}\n";
    let mut install = scene.install("v1");
    install
        .attrs
        .insert("manifests".to_owned(), json!(["chart", "overlay"]));
    install
        .attrs
        .insert("values".to_owned(), json!(["values.yaml"]));
    install.attrs.insert(
        "digest".to_owned(),
        format!("sha256:{}", sha256(format!("{rendered}---\n").as_bytes())).into(),
    );
    let empty = Environment::new();
    let report = scene.run_in(&install, ConflictPolicy::Yield, &empty).await;
    let (_, why) = report.failure().unwrap();
    assert_eq!(
        why,
        "`chart` is a chart, and no program that renders it is on PATH"
    );
    let bin = scene.source.path().join("bin");
    let said = |name: &str| format!("echo \"{name} $*\" >> \"{}/said\"", bin.display());
    write_program(
        &bin.join("helm"),
        &format!("#!/bin/sh\n{}\ncat << E\n{rendered}E\n", said("helm")),
    );
    write_program(
        &bin.join("kubectl"),
        &format!("#!/bin/sh\n{}\necho ---\n", said("kubectl")),
    );
    let env: Environment = [("PATH", format!("{}:/usr/bin:/bin", bin.display()))]
        .into_iter()
        .collect();
    let report = scene.run_in(&install, ConflictPolicy::Yield, &env).await;
    assert!(report.is_done(), "{report:?}");
    let root = scene.source.path().display().to_string();
    let said = fs::read_to_string(bin.join("said"))
        .unwrap()
        .replace(&root, "ROOT");
    let said = said.replace(&scene.namespace, "NS");
    insta::assert_snapshot!(said, @r"
    helm template argocd ROOT/chart --include-crds --no-hooks --namespace NS --values ROOT/values.yaml
    kubectl kustomize ROOT/overlay
    ");
}
