//! A cluster is bootstrapped: a runner that dies in the middle of an installation, and secrets that contexts have for
//! clusters.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use testkit::{Kubernetes, SeededRng, seed, write_program};

use crate::story::{Story, files, noted};

const OBJECTS: usize = 6;

/// A stack whose cluster is a namespace of a real API server. Each request asks the credential plugin first, which
/// waits from the given one on until the story opens `login`.
struct Scene {
    cluster: &'static Kubernetes,
    namespace: String,
    story: Story,
}

impl Scene {
    fn new(agent: &str, holds_from: usize) -> Self {
        let cluster = Kubernetes::with_kinds();
        let namespace = cluster.namespace();
        cluster.roll_out_an_agent(&namespace);
        let story = Story::new("tofu");
        let root = story.root().display().to_string();
        let login = format!(
            "#!/bin/sh\necho x >> {root}/asked\n\
             if [ \"$(wc -l < {root}/asked)\" -ge {holds_from} ]; then\n  \
             while [ -d {root} ] && [ ! -e {root}/login.go ]; do sleep 0.05; done\nfi\n\
             echo '{{\"status\": {{\"token\": \"{}\", \"expirationTimestamp\": \"2001-01-01T00:00:00Z\"}}}}'\n",
            Kubernetes::TOKEN
        );
        write_program(&story.root().join("login"), &login);
        let user =
            format!("exec: {{apiVersion: client.authentication.k8s.io/v1, command: {root}/login}}");
        let manifest: Vec<String> = (0..OBJECTS)
            .map(|at| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: part-{at}}}\ndata: {{a: b}}\n"))
            .collect();
        story.write("install.yaml", &manifest.join("---\n"));
        let digest = story.shell("sha256sum install.yaml").stdout;
        let digest = digest.split(' ').next().unwrap().to_owned();
        let bootstrap = format!(
            r#"
  bootstrap "{agent}" {{
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
            cluster.kubeconfig_of("", &user),
        );
        let secret = format!(
            "context \"keys\" {{\n  autoattach = [\"*\"]\n  secret \"sops-age\" {{\n    namespace = \"{namespace}\"\n    \
             data      = {{ \"age.agekey\" = secret(\"file:{root}/age.key\") }}\n  }}\n}}"
        );
        fs::write(story.root().join("age.key"), "AGE-SECRET-KEY-MARKED").unwrap();
        Self {
            cluster,
            namespace,
            story: story.block(&secret).stack("cluster", &bootstrap, &module),
        }
    }

    fn asked(&self) -> usize {
        let asked = fs::read_to_string(self.story.root().join("asked"));
        asked.unwrap_or_default().lines().count()
    }

    /// What was made, and in which version it stands there.
    fn made(&self) -> BTreeMap<String, String> {
        let mut made = BTreeMap::new();
        for kind in ["configmaps", "secrets"] {
            let list = self
                .cluster
                .get(&format!("/api/v1/namespaces/{}/{kind}", self.namespace));
            let list: Value = serde_json::from_str(&list).unwrap();
            for object in list["items"].as_array().unwrap() {
                let text = |name: &str| object["metadata"][name].as_str().unwrap().to_owned();
                let version = format!("{} {}", text("uid"), text("resourceVersion"));
                made.insert(format!("{kind}/{}", text("name")), version);
            }
        }
        made
    }
}

#[test]
fn a_runner_killed_in_the_middle_of_an_installation_goes_on_and_does_nothing_twice() {
    let mut dice = SeededRng::new(seed());
    for agent in ["argocd", "flux"] {
        // Not before the first object could be there, nor after the last one is.
        let moment = 6 + dice.place(2 * OBJECTS);
        let scene = Scene::new(agent, moment);
        let story = &scene.story;
        let apply = story.start("apply", &["apply", "--auto-approve"]);
        story.wait_until("the moment", || scene.asked() >= moment);
        let before = scene.made();
        assert!(
            before.len() <= OBJECTS,
            "{agent}: all was there already: {before:?}"
        );
        apply.kill();
        drop(apply.wait());
        testkit::kill(story.runner("r1"));
        story.open("login");
        drop(story.cli(&["apply", "--auto-approve", "--all"]).expect(0));
        let after = scene.made();
        assert_eq!(after.len(), OBJECTS + 1, "{agent}: {after:?}");
        for (name, version) in &before {
            assert_eq!(
                Some(version),
                after.get(name),
                "{agent}: {name} was written again"
            );
        }
        assert_eq!(
            story.made(),
            ["cluster"],
            "{agent}: nothing was applied twice"
        );
        drop(story.cli(&["apply", "--auto-approve", "--all"]).expect(0));
        assert_eq!(
            scene.made(),
            after,
            "{agent}: a further run changed something"
        );
    }
}

#[test]
fn secrets_of_a_context_reach_the_cluster_from_memory() {
    let scene = Scene::new("flux", usize::MAX);
    let said = scene.story.cli(&["apply", "--auto-approve"]).expect(0);
    assert!(!said.to_string().contains("MARKED"), "{said}");
    let path = format!("/api/v1/namespaces/{}/secrets/sops-age", scene.namespace);
    let secret: Value = serde_json::from_str(&scene.cluster.get(&path)).unwrap();
    assert_eq!(secret["data"]["age.agekey"], "QUdFLVNFQ1JFVC1LRVktTUFSS0VE");
    for file in files(&scene.story.home()) {
        let bytes = fs::read(&file).unwrap_or_default();
        for marked in [&b"SECRET-KEY-MARKED"[..], b"QUdFLVNFQ1JFVC1LRVkt"] {
            let found = bytes.windows(marked.len()).any(|part| part == marked);
            assert!(!found, "the secret lies in {}", file.display());
        }
    }
    let shown = scene
        .story
        .cli(&["context", "show", "cluster"])
        .expect(0)
        .stdout;
    assert!(
        shown.contains("/sops-age") && shown.contains("age.agekey: secret(\"file:"),
        "{shown}"
    );
}
