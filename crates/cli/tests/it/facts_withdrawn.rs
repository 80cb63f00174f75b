//! What a stack no longer publishes is withdrawn from every place that the project names, by the next run.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use testkit::{Kubernetes, TestTerrane};

use crate::project::{HEAD, stack, terrane};

const FACTS: &str = "\nfacts \"runtime\" {\n  repository = \"../facts.git\"\n}\n";
const OTHER: &str =
    "\nfacts \"runtime\" {\n  repository = \"../facts.git\"\n  branch     = \"other\"\n}\n";

struct World {
    test: TestTerrane,
}

impl World {
    fn new(module: &str) -> Self {
        let test = terrane();
        test.write("app/main.tf", module);
        drop(test.git(&["init", "--quiet", "--bare", "../facts.git"]));
        Self { test }
    }

    /// Applies with these lines in the stack.
    fn apply(&self, facts: &str, lines: &str) -> String {
        let text = format!("{HEAD}{facts}{}", stack("app", lines));
        self.test.write("terrane.hcl", &text);
        self.run(&["apply", "--auto-approve"], 0)
    }

    fn run(&self, args: &[&str], code: i32) -> String {
        self.test.cli(args).expect(code).to_string()
    }

    fn files(&self, branch: &str) -> Vec<String> {
        let args = [
            "--git-dir=../facts.git",
            "ls-tree",
            "-r",
            "--name-only",
            branch,
        ];
        let said = self.test.git(&args);
        said.lines().map(str::to_owned).collect()
    }

    fn file(&self, path: &str) -> bool {
        self.test.project().join(path).exists()
    }
}

fn publish(path: &str, inner: &str) -> String {
    format!(
        "publish \"runtime\" {{\n    path   = \"{path}\"\n    values = {{ address = output.address }}\n    {inner}\n  }}"
    )
}

const ADDRESS: &str = "output \"address\" {\n  value = \"20.1.2.3\"\n}\n";
const MANIFEST: &str = ".terrane/manifest.json";

#[test]
fn a_removed_path_or_block_withdraws_its_files() {
    let world = World::new(ADDRESS);
    let sink = "sink \"file\" { path = \"out/facts.json\" }";
    world.apply(FACTS, &publish("prod/a.yaml", sink));
    assert_eq!(world.files("facts"), [MANIFEST, "prod/a.yaml"]);
    assert!(world.file("out/facts.json"));
    // Another path, then no sink, then no block.
    world.apply(FACTS, &publish("prod/b.yaml", sink));
    assert_eq!(world.files("facts"), [MANIFEST, "prod/b.yaml"]);
    world.apply(FACTS, &publish("prod/b.yaml", ""));
    assert!(!world.file("out/facts.json"));
    world.apply(FACTS, "");
    assert_eq!(world.files("facts"), [MANIFEST]);
    let said = world.run(&["facts", "diff"], 1);
    assert!(said.contains("no stack here publishes facts"), "{said}");
}

#[test]
fn facts_on_a_branch_that_is_no_longer_named_stay_with_a_warning() {
    let world = World::new(ADDRESS);
    world.apply(FACTS, &publish("a.yaml", ""));
    let said = world.apply(OTHER, &publish("a.yaml", ""));
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("left there, remove it yourself: the project no longer names it"),
        "{said}"
    );
    assert_eq!(world.files("facts"), [MANIFEST, "a.yaml"]);
    assert_eq!(world.files("other"), [MANIFEST, "a.yaml"]);
    world.run(&["facts", "diff"], 0);
}

#[test]
fn a_file_that_somebody_else_made_is_not_written_over() {
    let world = World::new(ADDRESS);
    let block = publish("a.yaml", "sink \"file\" { path = \"out/facts.json\" }");
    world.test.write("out/facts.json", "{\"mine\": 1}\n");
    world.test.write(
        "terrane.hcl",
        &format!("{HEAD}{FACTS}{}", stack("app", &block)),
    );
    let said = world.run(&["apply", "--auto-approve"], 4);
    assert!(
        said.contains("`out/facts.json` of the project was changed since terrane wrote it"),
        "{said}"
    );
    assert_eq!(world.test.read("out/facts.json"), "{\"mine\": 1}\n");
    world.run(
        &[
            "facts",
            "publish",
            "app",
            "--take-over",
            "--reason",
            "it is ours now",
        ],
        0,
    );
    assert!(world.test.read("out/facts.json").contains("20.1.2.3"));
}

#[test]
fn a_destroyed_stack_and_one_that_the_project_lost_leave_nothing() {
    let world = World::new(ADDRESS);
    let block = publish("a.yaml", "sink \"file\" { path = \"out/facts.json\" }");
    world.apply(FACTS, &block);
    world.run(&["destroy", "--auto-approve"], 0);
    assert_eq!(world.files("facts"), [MANIFEST]);
    assert!(!world.file("out/facts.json"));

    world.apply(FACTS, &block);
    let gone = format!("{HEAD}{FACTS}{}", stack("other", ""));
    world
        .test
        .write("terrane.hcl", &gone)
        .write("other/main.tf", "");
    let said = world.run(&["facts", "diff"], 2);
    assert!(
        said.contains("app → file `out/facts.json`: the project no longer names it"),
        "{said}"
    );
    let said = world.run(&["facts", "publish"], 0);
    assert!(said.contains("- a.yaml  withdrawn"), "{said}");
    assert_eq!(world.files("facts"), [MANIFEST]);
    assert!(!world.file("out/facts.json"));
}

#[test]
fn a_dependent_of_which_nothing_changed_follows_its_place() {
    let world = World::new(
        "variable \"zone\" {\n  type = string\n}\noutput \"address\" {\n  value = var.zone\n}\n",
    );
    world
        .test
        .write("base/main.tf", "output \"zone\" {\n  value = \"b\"\n}\n");
    let block = publish("a.yaml", "");
    let apply = |facts: &str| {
        let app = format!("inputs = {{ zone = stack.base.output.zone }}\n  {block}");
        let facts = format!("{facts}{}", stack("base", ""));
        world.apply(&facts, &app)
    };
    apply(FACTS);
    apply(OTHER);
    assert_eq!(world.files("other"), [MANIFEST, "a.yaml"]);
}

/// A stack whose kubeconfig is an output, as that of a cluster is.
fn with_cluster(kubeconfig: &str) -> String {
    let text = kubeconfig.replace("${", "$${");
    format!(
        "{ADDRESS}output \"kubeconfig\" {{\n  sensitive = true\n  value     = <<-EOT\n{text}\nEOT\n}}\n"
    )
}

fn sinks(namespace: &str, kinds: &[&str]) -> String {
    let sink = |kind: &&str| {
        format!(
            "sink \"{kind}\" {{\n      kubeconfig = output.kubeconfig\n      namespace  = \"{namespace}\"\n      name       = \"facts-{kind}\"\n    }}"
        )
    };
    let sinks: Vec<String> = kinds.iter().map(sink).collect();
    publish("a.yaml", &sinks.join("\n    "))
}

fn there(cluster: &Kubernetes, namespace: &str) -> Vec<String> {
    let mut names = Vec::new();
    for kind in ["configmaps", "secrets"] {
        let path = format!("/api/v1/namespaces/{namespace}/{kind}");
        let list: Value = serde_json::from_str(&cluster.get(&path)).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        let named = items.filter_map(|item| item["metadata"]["name"].as_str());
        names.extend(
            named
                .filter(|name| name.starts_with("facts-"))
                .map(str::to_owned),
        );
    }
    names
}

#[test]
fn objects_in_clusters_are_compared_and_go_with_their_stack() {
    let cluster = Kubernetes::start();
    let namespace = cluster.namespace();
    let world = World::new(&with_cluster(&cluster.kubeconfig()));
    let all = ["configmap", "secret", "argocd-cluster"];
    world.apply(FACTS, &sinks(&namespace, &all));
    assert_eq!(
        there(cluster, &namespace),
        ["facts-configmap", "facts-argocd-cluster", "facts-secret"]
    );
    world.run(&["facts", "diff"], 0);
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/facts-configmap");
    cluster.merge(&path, "kubectl-edit", r#"{"data": {"address": "by hand"}}"#);
    let path = format!("/api/v1/namespaces/{namespace}/secrets/facts-secret");
    cluster.merge(
        &path,
        "kubectl-edit",
        r#"{"data": {"address": "YnkgaGFuZA=="}}"#,
    );
    let said = world.run(&["facts", "diff"], 2);
    assert!(
        said.contains("      address: \"by hand\" → \"20.1.2.3\""),
        "{said}"
    );
    assert!(
        said.contains("      address: (sensitive) → (sensitive)"),
        "{said}"
    );
    let taken = [
        "facts",
        "publish",
        "--take-over",
        "--reason",
        "edited by hand",
    ];
    world.run(&taken, 0);
    world.run(&["facts", "diff"], 0);

    // A removed sink leaves its object, and says so.
    let said = world.apply(FACTS, &sinks(&namespace, &["configmap", "secret"]));
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("left there, remove it yourself: the project no longer names it"),
        "{said}"
    );
    // The kubeconfig is an output from before the destroy.
    world.run(&["destroy", "--auto-approve"], 0);
    assert_eq!(there(cluster, &namespace), ["facts-argocd-cluster"]);
    assert!(!world.files("facts").contains(&"a.yaml".to_owned()));
}

#[test]
fn a_cluster_that_is_gone_with_its_stack_stops_nobody() {
    let cluster = Kubernetes::start();
    let namespace = cluster.namespace();
    let address = cluster.address();
    let server = address.trim_start_matches("https://");
    let door = Door::to(server);
    let kubeconfig = cluster.kubeconfig().replace(server, &door.address);
    let world = World::new(&with_cluster(&kubeconfig));
    world.apply(FACTS, &sinks(&namespace, &["configmap"]));
    assert_eq!(there(cluster, &namespace), ["facts-configmap"]);
    door.shut();
    let said = world.run(&["facts", "diff"], 1);
    assert!(said.contains("cannot be read"), "{said}");
    let said = world.run(&["destroy", "--auto-approve"], 0);
    // Lines are broken to fit.
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(
        words.join(" ").contains("left there, remove it yourself"),
        "{said}"
    );
    assert_eq!(world.files("facts"), [MANIFEST]);
    let said = world.run(&["facts", "diff"], 0);
    assert!(!said.contains("configmap"), "{said}");
}

/// A way to a server that can be shut.
struct Door {
    address: String,
    is_shut: Arc<AtomicBool>,
}

impl Door {
    fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_shut = Arc::new(AtomicBool::new(false));
        let (server, shut) = (server.to_owned(), Arc::clone(&is_shut));
        std::thread::spawn(move || {
            for inside in listener.incoming() {
                if shut.load(Ordering::SeqCst) {
                    return; // and whoever comes next is refused
                }
                let (Ok(inside), Ok(outside)) = (inside, TcpStream::connect(&server)) else {
                    continue;
                };
                carry(&inside, &outside);
                carry(&outside, &inside);
            }
        });
        Self { address, is_shut }
    }

    fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
        // The one that it waits for.
        drop(TcpStream::connect(&self.address));
    }
}

fn carry(from: &TcpStream, to: &TcpStream) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else {
        return;
    };
    std::thread::spawn(move || {
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Both));
    });
}
