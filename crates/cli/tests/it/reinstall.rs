//! `apply --reinstall`: what GitOps has taken over since is taken back, with a reason, on the record.

use insta::assert_snapshot;
use serde_json::{Value, json};
use testkit::Kubernetes;

use crate::cancel::named;
use crate::story::{Story, essence, noted};

/// A cluster whose agent, of one object, terrane installed.
struct Scene {
    cluster: &'static Kubernetes,
    namespace: String,
    story: Story,
}

impl Scene {
    fn new() -> Self {
        let cluster = Kubernetes::start();
        let namespace = cluster.namespace();
        cluster.roll_out_an_agent(&namespace);
        let story = Story::new("tofu");
        let manifest =
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: agent}\ndata: {image: v1}\n";
        story.write("install.yaml", manifest);
        let digest = story.shell("sha256sum install.yaml").stdout;
        let digest = digest.split(' ').next().unwrap().to_owned();
        let bootstrap = format!(
            r#"
  bootstrap "argocd" {{
    kubeconfig = output.kubeconfig
    version    = "v3.5.6"
    namespace  = "{namespace}"
    manifests  = ["install.yaml"]
    digest     = "sha256:{digest}"
  }}"#
        );
        let module = format!(
            "{}output \"kubeconfig\" {{\n  sensitive = true\n  value     = <<-EOT\n{}EOT\n}}\n",
            noted("cluster"),
            cluster.kubeconfig(),
        );
        Self {
            cluster,
            namespace,
            story: story.stack("cluster", &bootstrap, &module),
        }
    }

    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps/agent", self.namespace)
    }

    fn image(&self) -> Value {
        let object: Value = serde_json::from_str(&self.cluster.get(&self.path())).unwrap();
        object["data"]["image"].clone()
    }

    fn open_acts(&self) -> Vec<String> {
        let said = self
            .story
            .cli(&["run", "list", "--open", "--json"])
            .expect(0);
        let acts: Value = serde_json::from_str(&said.stdout).unwrap();
        let acts = acts["open"].as_array().unwrap().iter();
        acts.map(|act| format!("{}: {}", act["act"], act["reason"]).replace('"', ""))
            .collect()
    }
}

#[test]
fn what_gitops_took_over_is_taken_back_only_with_a_reason() {
    let scene = Scene::new();
    let story = &scene.story;
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    let taken = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "agent"}, "data": {"image": "v2"}});
    let path = scene.path();
    scene
        .cluster
        .apply_as(&path, "argocd-controller", &taken.to_string());
    // Its own version is its own business.
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(scene.image(), "v2");

    let reinstall = ["apply", "--auto-approve", "--reinstall"];
    for reason in [&[][..], &["--reason", "  "]] {
        drop(story.cli(&[&reinstall[..], reason].concat()).expect(64));
    }
    assert_eq!(scene.image(), "v2");
    assert_eq!(scene.open_acts(), [""; 0]);

    let why = ["--reason", "argocd broke itself"];
    let said = story.cli(&[&reinstall[..], &why].concat()).expect(0);
    assert_snapshot!(named(&essence(&said)), @"
    change set c3: apply on `local`
      cluster   no changes, bootstrapped
    Done: 1 stack unchanged in 0 s.
    warning: cluster: bootstrap took everything back (run r3)
    hint: `terrane run list --open` shows it until a run of the stack succeeds without `--reinstall`
    [exit 0]
    ");
    assert_eq!(scene.image(), "v1");
    assert_eq!(scene.open_acts(), ["reinstalled: argocd broke itself"]);
    let said = story.cli(&["run", "show", "r3"]).expect(0).stdout;
    assert!(said.contains("taken back from argocd-controller"), "{said}");

    // It stays open until an apply was done without it, which takes nothing from anybody.
    drop(story.cli(&["apply", "--auto-approve"]).expect(0));
    assert_eq!(scene.open_acts(), [""; 0]);
    assert_eq!(scene.image(), "v1");
    assert_eq!(story.made(), ["cluster"]);
}

#[test]
fn where_nothing_is_installed_nothing_is_taken_back() {
    let story = Story::new("tofu").stack("base", "", &noted("base"));
    let said = story
        .cli(&["apply", "--auto-approve", "--reinstall", "--reason", "x"])
        .expect(1);
    assert_snapshot!(said.stderr, @"
    error: none of these stacks has a `bootstrap` that installs something
    hint: name the stack that has one: `terrane apply STACK --reinstall`
    ");
    assert_eq!(story.made(), [""; 0]);
}
