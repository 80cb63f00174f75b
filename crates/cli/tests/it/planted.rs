//! Secrets are planted wherever they can enter, one run uses them all, and everything that comes out is searched: what is
//! said, what is written, what is committed, in each form that a text takes on its way.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Once;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use testkit::{
    AgeKey, CommandOutput, Kubernetes, Minio, Moto, ScriptedServer, Sops, TestTerrane, Vault,
};

use crate::project::terrane;
use crate::server::Server;
use crate::story::{files, is_busy};

/// Characters that every encoder treats in its own way.
fn plant(name: &str) -> String {
    format!("plant+{name}/x&y=z \"{name}\" 4711")
}

/// Where secrets enter beside those that others fix.
const NAMES: [&str; 17] = [
    "env",
    "file",
    "sops",
    "dotenv",
    "command",
    "vault",
    "azure",
    "aws",
    "ssm",
    "var",
    "passed",
    "output",
    "bootstrap",
    "input",
    "vault-token",
    "hook",
    "files",
];

/// One secret in one form; what is looked for.
struct Trace {
    name: String,
    form: &'static str,
    text: String,
}

/// The part of each secret that no encoder shares with another secret.
fn traces() -> Vec<Trace> {
    let mut all = Vec::new();
    let planted = NAMES.iter().map(|name| ((*name).to_owned(), plant(name)));
    let fixed = [
        ("kubeconfig", Kubernetes::TOKEN),
        ("backend", Minio::SECRET_KEY),
    ];
    let fixed = fixed.map(|(name, text)| (name.to_owned(), text.to_owned()));
    for (name, text) in planted.chain(fixed) {
        let mut add = |form, text: String| {
            all.push(Trace {
                name: name.clone(),
                form,
                text,
            });
        };
        let percent = |byte: u8| {
            let code = format!("%{byte:02X}");
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                code
            }
        };
        let percent: String = text.bytes().map(percent).collect();
        add("plain", text.split(' ').next().unwrap().to_owned());
        add("url", percent.split("%20").next().unwrap().to_owned());
        add(
            "url in lower case",
            percent.split("%20").next().unwrap().to_lowercase(),
        );
        for before in ["", "x", "xx"] {
            // What the neighbours do not decide.
            let encoded = STANDARD_NO_PAD.encode(format!("{before}{text}"));
            let core = encoded[before.len() * 2..encoded.len() - 2].to_owned();
            add("base64 for URLs", core.replace('+', "-").replace('/', "_"));
            add("base64", core);
        }
        let hex = |byte: u8| format!("{byte:02x}");
        let hex: String = text.bytes().map(hex).collect();
        add("hex", hex);
    }
    all
}

/// Everything that came out, and where.
#[derive(Default)]
struct Searched {
    traces: Vec<Trace>,
    found: Vec<String>,
    places: usize,
}

impl Searched {
    fn new() -> Self {
        Self {
            traces: traces(),
            ..Self::default()
        }
    }

    fn look(&mut self, place: &str, bytes: &[u8]) {
        self.places += 1;
        let text = String::from_utf8_lossy(bytes);
        for trace in &self.traces {
            if let Some(at) = text.find(&trace.text) {
                let before: String = text[..at].chars().rev().take(80).collect();
                let before: String = before.chars().rev().collect();
                let after: String = text[at..].chars().take(160).collect();
                self.found.push(format!(
                    "{place}: `{}` in {}: …{before}{after}…",
                    trace.name, trace.form
                ));
            }
        }
    }

    fn said(&mut self, what: &str, said: &CommandOutput) {
        self.look(&format!("stdout of `{what}`"), said.stdout.as_bytes());
        self.look(&format!("stderr of `{what}`"), said.stderr.as_bytes());
    }

    fn files(&mut self, dir: &Path, but: &[PathBuf]) {
        for path in files(dir) {
            // Links lead to engines and providers, which are nobody's secret.
            let is_link = fs::symlink_metadata(&path).is_ok_and(|it| it.is_symlink());
            if !is_link && !but.iter().any(|sown| path.starts_with(sown)) {
                let bytes = fs::read(&path).unwrap_or_default();
                self.look(&path.display().to_string(), &bytes);
            }
        }
    }

    #[track_caller]
    fn finish(self) {
        assert!(
            self.places > 50,
            "only {} places were searched",
            self.places
        );
        assert!(self.found.is_empty(), "{}", self.found.join("\n"));
    }
}

/// What the engine and every other child are made to say: each value in clear and in other coats.
const SAY: &str = r#"#!/bin/sh
for value in "$@"; do
  printf '%s\n' "plain: $value"
  printf '%s' "$value" | base64 -w0; echo
  printf 'user:%s' "$value" | base64 -w20
  printf '%s' "$value" | od -An -v -tx1 | tr -d ' \n' | sed 's/../%&/g'; echo
  printf '%s' "$value" | od -An -v -tx1 | tr -d ' \n'; echo
  printf '%s' "$value" | sed 's/%/%25/g; s/+/%2B/g; s/\//%2F/g; s/&/%26/g; s/=/%3D/g; s/ /%20/g; s/"/%22/g'; echo
done
"#;

const MODULE: &str = r#"
variable "password" { type = string }
variable "kubeconfig" {
  type      = string
  sensitive = true
}
resource "terraform_data" "says" {
  input = "user:${var.password}"
  provisioner "local-exec" {
    command = "sh ../say.sh \"$FROM_ENV\" \"$FROM_FILE\" \"$FROM_SOPS\" \"$FROM_DOTENV\" \"$FROM_COMMAND\" \"$FROM_VAULT\" \"$FROM_AZURE\" \"$FROM_AWS\" \"$FROM_SSM\" \"$PASSED_TOKEN\""
  }
  provisioner "local-exec" {
    command = "sh ../say.sh '${base64encode(var.password)}' '${var.password}' '${urlencode(var.password)}'; exit FAIL"
  }
}
output "token" {
  value     = sensitive(strrev("TUPTUO"))
  sensitive = true
}
output "kubeconfig" {
  value     = var.kubeconfig
  sensitive = true
}
output "password" {
  value     = var.password
  sensitive = true
}
output "name" { value = "base" }
"#;

const CONSUMER: &str = r#"
variable "token" { type = string }
variable "own" {
  type      = string
  sensitive = true
}
resource "terraform_data" "user" {
  input = { login = "root:${var.token}", own = var.own, encoded = base64encode("user:${var.token}") }
}
output "encoded" {
  value     = urlencode(var.token)
  sensitive = true
}
"#;

struct Garden {
    test: TestTerrane,
    /// Answers for Azure, for a gate, and for a Vault that repeats the token it refuses.
    scripted: ScriptedServer,
    namespace: String,
}

/// A Vault with a KV store `name`. The planted token may read one secret of it.
fn vault_with(name: &str, value: &str) -> Vault {
    static TOKEN: Once = Once::new();
    let vault = Vault::start();
    vault.mount_kv(name);
    vault.write(
        &format!("{name}/data/app"),
        &format!(r#"{{"data":{{"key":{value}}}}}"#),
    );
    // All tests of this process share one Vault, and plant one token.
    TOKEN.call_once(|| {
        let policy = r#"path "+/data/app" { capabilities = ["read"] }"#;
        let policy = serde_json::json!({ "policy": policy });
        vault.write("sys/policies/acl/planted", &policy.to_string());
        let token = serde_json::json!({ "id": plant("vault-token"), "policies": ["planted"] });
        vault.write("auth/token/create", &token.to_string());
    });
    vault
}

/// A project in which every value is planted. `gate` is what the last gate runs.
fn garden() -> Garden {
    let cluster = Kubernetes::start();
    let namespace = cluster.namespace();
    cluster.roll_out_an_agent(&namespace);
    let minio = Minio::start();
    let moto = Moto::start();
    let quoted = |name: &str| serde_json::to_string(&plant(name)).unwrap();
    let name = format!("planted-{namespace}");
    let vault = vault_with(&name, &quoted("vault"));
    let scripted = ScriptedServer::start(&[
        (
            &format!("GET /v1/{name}/data/app"),
            403,
            &format!(
                r#"{{"errors":["no, {}"]}}"#,
                plant("vault-token").replace('"', "\\\"")
            ),
        ),
        (
            "GET /echo",
            200,
            &format!(
                "token {} and {}",
                plant("output"),
                STANDARD_NO_PAD.encode(plant("output"))
            ),
        ),
        (
            "GET /secrets/app?api-version=7.4",
            200,
            &format!(r#"{{"value":{}}}"#, quoted("azure")),
        ),
        (
            "POST /tenant/oauth2/v2.0/token",
            200,
            r#"{"access_token":"an-azure-token"}"#,
        ),
    ]);
    moto.put_secret(&name, &format!(r#"{{"key":{}}}"#, quoted("aws")));
    moto.put_parameter(&format!("/{name}"), &plant("ssm"));

    let mut test = terrane();
    for (name, value) in [
        ("PLANT_ENV", plant("env")),
        ("PLANT_VAR", plant("var")),
        ("PLANT_INPUT", plant("input")),
        ("PLANT_HOOK", plant("hook")),
        ("PLANT_FILES", plant("files")),
        ("PLANT_BOOTSTRAP", plant("bootstrap")),
        ("PASSED_TOKEN", plant("passed")),
        ("PLANT_KUBECONFIG", cluster.kubeconfig()),
        ("STATE_KEY", Minio::SECRET_KEY.to_owned()),
        ("VAULT_ADDR", vault.address()),
        ("VAULT_TOKEN", plant("vault-token")),
        ("AZURE_AUTHORITY_HOST", scripted.address().to_owned()),
        ("AZURE_TENANT_ID", "tenant".to_owned()),
        ("AZURE_CLIENT_ID", "client".to_owned()),
        ("ARM_OIDC_TOKEN", "an-assertion".to_owned()),
        ("AWS_REGION", Moto::REGION.to_owned()),
        ("AWS_ENDPOINT_URL", moto.endpoint()),
        ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "a-key-of-aws".to_owned()),
    ] {
        test = test.env(name, &value);
    }
    let temporary = test.root().join("tmp").display().to_string();
    fs::create_dir(&temporary).unwrap();
    let test = test.env("TMPDIR", &temporary);

    // Where secrets are kept: the only places that may hold them.
    let sown = test.root().join("user");
    fs::write(sown.join("plant"), plant("file")).unwrap();
    fs::write(sown.join(".env"), format!("TOKEN='{}'\n", plant("dotenv"))).unwrap();
    testkit::write_program(
        &sown.join("tell.sh"),
        &format!("#!/bin/sh\nprintf '%s\\n' '{}'\n", plant("command")),
    );
    let key = AgeKey::generate();
    fs::create_dir_all(sown.join(".config/sops/age")).unwrap();
    let key_file = sown.join(".config/sops/age/keys.txt");
    key.save(&key_file);
    let rules = format!("creation_rules:\n  - age: {}\n", key.recipient);
    test.write(".sops.yaml", &rules);
    let plain = format!("plant: {}\n", quoted("sops"));
    test.write("secrets.sops.yaml", &plain);
    Sops::with_key(&key_file).run(
        &test.project(),
        &["encrypt", "--in-place", "secrets.sops.yaml"],
    );

    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: b}\n";
    test.write("install.yaml", manifest);
    let digest = test.shell("sha256sum install.yaml").stdout;
    let digest = digest.split(' ').next().unwrap().to_owned();
    let project = format!(
        r#"project "planted" {{
  id = "pl4nt3"
  engine "tofu" {{ version = "~> 1.11" }}
}}
layer "all" {{ order = 0 }}
target "local" {{ writers = ["anyone"] }}
target "bucket" {{
  writers = ["anyone"]
  backend "s3" {{
    bucket = "{bucket}"
    key = "${{stack.state}}.tfstate"
    region = "us-east-1"
    use_path_style = true
    skip_credentials_validation = true
    skip_metadata_api_check = true
    skip_region_validation = true
    skip_requesting_account_id = true
    endpoints = {{ s3 = "{s3}" }}
    access_key = "{access}"
    secret_key = env("STATE_KEY")
  }}
}}
facts "runtime" {{
  repository = "../facts.git"
  sensitive  = "encrypt"
}}
context "all" {{
  autoattach = ["target:local", "target:bucket"]
  pass_env   = ["PASSED_TOKEN"]
  env = {{
    FROM_ENV     = secret("env:PLANT_ENV")
    FROM_FILE    = secret("file:~/plant")
    FROM_SOPS    = secret("sops:secrets.sops.yaml#plant")
    FROM_DOTENV  = secret("dotenv:~/.env#TOKEN")
    FROM_COMMAND = secret("command:{user}/tell.sh")
    FROM_VAULT   = secret("vault:{name}/app#key")
    FROM_AZURE   = secret("azure-keyvault:{azure}/app")
    FROM_AWS     = secret("aws-secretsmanager:{name}#key")
    FROM_SSM     = secret("aws-ssm:/{name}")
  }}
  vars = {{
    password   = secret("env:PLANT_VAR")
    own        = secret("env:PLANT_INPUT")
    kubeconfig = env("PLANT_KUBECONFIG")
  }}
  files = {{ "token.txt" = secret("env:PLANT_FILES") }}
  hook "after" "plan" {{
    run = ["sh", "-c", "sh ../say.sh \"$HOOKED\" \"$FROM_VAULT\" \"$(cat token.txt)\""]
    env = {{ HOOKED = secret("env:PLANT_HOOK") }}
  }}
}}
stack "base" {{
  path   = "base"
  target = "local"
  layer  = "all"
  publish "runtime" {{
    path   = "base.yaml"
    values = {{ name = output.name, token = output.token }}
    sink "secret" {{
      kubeconfig = output.kubeconfig
      namespace  = "{namespace}"
      name       = "facts"
    }}
  }}
  bootstrap "argocd" {{
    kubeconfig = output.kubeconfig
    version    = "v3.5.6"
    namespace  = "{namespace}"
    manifests  = ["install.yaml"]
    digest     = "sha256:{digest}"
    timeout    = "60s"
    secret "planted" {{
      namespace = "{namespace}"
      data      = {{ key = secret("env:PLANT_BOOTSTRAP") }}
    }}
  }}
  bootstrap "command" {{
    run = ["sh", "-c", "sh say.sh \"$TOKEN\" \"$FROM_VAULT\" \"$FROM_ENV\""]
    env = {{ TOKEN = output.token }}
  }}
  gate "command" "says" {{
    run     = ["sh", "-c", "sh say.sh \"$TOKEN\" \"$FROM_SOPS\""]
    env     = {{ TOKEN = output.token }}
    timeout = "60s"
  }}
  gate "http" "echoes" {{
    url     = "{echo}/echo"
    headers = {{ "x-token" = output.password }}
    timeout = "60s"
  }}
  gate "kubernetes" "installed" {{
    kubeconfig = output.kubeconfig
    kind       = "ConfigMap"
    name       = "one"
    namespace  = "{namespace}"
    field      = "data.a"
    expect     = "b"
    timeout    = "60s"
  }}
}}
stack "consumer" {{
  path   = "consumer"
  target = "bucket"
  layer  = "all"
  inputs = {{ token = stack.base.output.token }}
}}
"#,
        bucket = minio.bucket(),
        s3 = minio.endpoint(),
        access = Minio::ACCESS_KEY,
        user = sown.display(),
        azure = scripted.host(),
        echo = scripted.address(),
    );
    let reversed: String = plant("output").chars().rev().collect();
    let module = MODULE.replace("TUPTUO", &reversed.replace('"', "\\\""));
    test.write("terrane.hcl", &project)
        .write("say.sh", SAY)
        .write("base/main.tf", &module.replace("FAIL", "0"))
        .write("consumer/main.tf", CONSUMER);
    drop(test.git(&["init", "--quiet", "--bare", "../facts.git"]));
    Garden {
        test,
        scripted,
        namespace,
    }
}

impl Garden {
    fn settle(&self) {
        self.test
            .wait_until("the end of all runners", || !is_busy(&self.test));
    }

    /// Every file that was written, but those in which the secrets were kept from the start.
    fn search_files(&self, searched: &mut Searched) {
        let test = &self.test;
        let root = test.root();
        let user = root.join("user");
        let mut sown: Vec<PathBuf> = ["plant", ".env", "tell.sh"]
            .iter()
            .map(|name| user.join(name))
            .collect();
        // Engines and providers.
        sown.extend([root.join("bin"), root.join("cache")]);
        searched.files(root, &sown);
        for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            let is_ours = fs::metadata(entry.path()).is_ok_and(|it| it.uid() == uid());
            if is_ours && entry.file_name().to_string_lossy().starts_with("terrane-") {
                // Other tests are at work there; ours is done.
                let text = root.display().to_string();
                let files = files(&entry.path());
                let mine = |path: &PathBuf| {
                    let bytes = fs::read(path).unwrap_or_default();
                    String::from_utf8_lossy(&bytes).contains(&text)
                };
                assert!(!files.iter().any(mine), "left behind: {files:?}");
            }
        }
        let all = test.git(&[
            "--git-dir=../facts.git",
            "log",
            "--all",
            "-p",
            "--format=%B",
        ]);
        searched.look("the commits of facts", all.as_bytes());
    }
}

fn uid() -> u32 {
    fs::metadata("/proc/self").map_or(0, |it| it.uid())
}

#[test]
fn no_secret_comes_out_anywhere() {
    let garden = garden();
    let test = &garden.test;
    let mut searched = Searched::new();
    let run = |searched: &mut Searched, args: &[&str], code: i32| {
        let said = test.cli(args);
        searched.said(&args.join(" "), &said);
        said.expect(code)
    };
    drop(run(&mut searched, &["validate"], 0));
    drop(run(&mut searched, &["plan", "--full"], 0));
    drop(run(
        &mut searched,
        &["apply", "--auto-approve", "--json"],
        0,
    ));
    garden.settle();

    // They arrived: the cluster has what was meant for it, and the engine made something of the rest.
    let cluster = Kubernetes::start();
    let path = format!("/api/v1/namespaces/{}/secrets/planted", garden.namespace);
    let put: serde_json::Value = serde_json::from_str(&cluster.get(&path)).unwrap();
    let put = put["data"]["key"].as_str().unwrap();
    assert_eq!(
        put,
        base64::engine::general_purpose::STANDARD.encode(plant("bootstrap"))
    );
    let output = test.cli(&["output", "base", "token", "--raw"]).expect(0);
    assert_eq!(output.stdout, plant("output"));
    let logs = test.cli(&["run", "logs", "r3"]).expect(0);
    assert!(logs.to_string().contains("plain: (secret)"), "{logs}");

    for args in [
        &["output", "base"][..],
        &["output", "base", "--json"],
        &["facts", "show"],
        &["facts", "diff"],
        &["facts", "publish"],
        &["verify", "--json"],
        &["run", "list", "--all"],
        &["run", "list", "--all", "--json"],
        &["run", "show", "r1"],
        &["run", "show", "r1", "--json"],
        &["run", "show", "c2"],
        &["run", "logs", "r3"],
        &["run", "logs", "r4"],
        &["plan", "--full", "--json"],
        &["state", "show", "base"],
        &["state", "list"],
    ] {
        let said = test.cli(args);
        searched.said(&args.join(" "), &said);
    }
    // A change beside the values shows their neighbourhood; what the engine says of a failure quotes them.
    let module = test.read("base/main.tf");
    let module = module
        .replace("exit 0", "exit 3")
        .replace("user:${", "admin:${");
    test.write("base/main.tf", &module);
    drop(run(&mut searched, &["plan", "--full"], 0));
    let replace = module.replace("  input = ", "  triggers_replace = 2\n  input = ");
    test.write("base/main.tf", &replace);
    drop(run(&mut searched, &["apply", "--auto-approve"], 1));
    garden.settle();
    for args in [
        &["run", "logs", "r9"][..],
        &["run", "show", "c5"],
        &["run", "show", "c5", "--json"],
        &["run", "list", "--all", "--json"],
    ] {
        let said = test.cli(args);
        searched.said(&args.join(" "), &said);
    }
    garden.search_files(&mut searched);
    searched.finish();
}

#[test]
fn no_failure_gives_a_secret_away() {
    let garden = garden();
    let test = &garden.test;
    let mut searched = Searched::new();
    let project = test.read("terrane.hcl");
    let variants: [(&str, &str); 7] = [
        ("/app#key\")", "/refused#key\")"),
        ("/app#key\")", "/app#missing\")"),
        ("#plant\")", "#missing\")"),
        ("~/.env#TOKEN", "~/.env#MISSING"),
        (
            "tell.sh\")",
            "tell.sh 2\")\n    WRONG = secret(\"command:sh -c 'cat ~/plant; cat ~/plant >&2; exit 3'\")",
        ),
        ("sensitive  = \"encrypt\"", "sensitive  = \"refuse\""),
        ("aws-ssm:/", "aws-ssm:/missing-"),
    ];
    for (from, to) in variants {
        let variant = project.replace(from, to);
        assert_ne!(variant, project, "{from}");
        test.write("terrane.hcl", &variant);
        for args in [&["validate"][..], &["apply", "base", "--auto-approve"]] {
            let said = test.cli(args);
            searched.said(&format!("{} with {to}", args.join(" ")), &said);
            garden.settle();
        }
    }
    test.write("terrane.hcl", &project);
    for env in [
        [("STATE_KEY", "wrong"), ("VAULT_ADDR", "http://127.0.0.1:9")],
        [("VAULT_ADDR", garden.scripted.address()), ("A", "b")],
        [("AWS_ENDPOINT_URL", "http://127.0.0.1:9"), ("A", "b")],
        [("PLANT_KUBECONFIG", "not: [one"), ("A", "b")],
        [("AZURE_TENANT_ID", "nobody"), ("A", "b")],
    ] {
        for args in [
            &["plan"][..],
            &["apply", "--auto-approve"],
            &["verify", "--once"],
        ] {
            let said = test.cli_with(&env, args);
            searched.said(&format!("{} with {env:?}", args.join(" ")), &said);
            garden.settle();
        }
    }
    // A server that is asked with tokens, good and bad, says nothing of them.
    let made = test.cli(&["token", "create", "planted"]);
    let server = Server::start(test, &[]);
    let token = made
        .stdout
        .trim()
        .rsplit([' ', '\n'])
        .next()
        .unwrap_or_default();
    for bearer in [token, &plant("passed")] {
        let request = format!(
            "GET /states/pl4nt3/base?token={} HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {bearer}\r\n\r\n",
            plant("passed").replace([' ', '"'], "%20")
        );
        let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        std::io::Read::read_to_end(&mut stream, &mut answer).unwrap();
        searched.look("an answer of the server", &answer);
    }
    let said = server.stop();
    searched.said("server", &said);
    garden.search_files(&mut searched);
    searched.finish();
}

/// While an engine runs with all of them.
#[test]
fn processes_keep_secrets_to_themselves() {
    let garden = garden();
    let test = &garden.test;
    let root = test.root().display();
    let waits = format!(
        "{}\nresource \"terraform_data\" \"waits\" {{\n  provisioner \"local-exec\" {{\n    command = \"touch {root}/started; \
         while [ -d {root} ] && [ ! -e {root}/go ]; do sleep 0.05; done\"\n  }}\n}}\n",
        test.read("base/main.tf")
    );
    test.write("base/main.tf", &waits);
    let apply = test.start("apply", &["apply", "base", "--auto-approve"]);
    let started = test.root().join("started");
    test.wait_until("the engine to be at work", || started.exists());

    let mut searched = Searched::new();
    searched.places = 51;
    let ours: Vec<u32> = processes_below(apply.pid(), &test.home());
    let mut roles = Vec::new();
    for pid in ours {
        let Ok(command) = fs::read(format!("/proc/{pid}/cmdline")) else {
            continue; // gone
        };
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = name.trim().to_owned();
        // What the project's own scripts do with a value is theirs.
        if !["terrane", "tofu"].contains(&name.as_str()) {
            continue;
        }
        searched.look(&format!("the command line of {pid}"), &command);
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        let core: Vec<&str> = core.unwrap_or_default().split_whitespace().collect();
        assert_eq!(core[4..6], ["0", "0"], "{name} may dump its core");
        roles.push(name);
    }
    // The terminal, the runner and the engine.
    assert!(
        roles.iter().filter(|name| *name == "terrane").count() >= 2,
        "{roles:?}"
    );
    assert!(roles.iter().any(|name| name == "tofu"), "{roles:?}");

    // What must lie in a file for the engine lies in memory, where nobody else can read it.
    let mut dirs = vec![test.root().to_owned()];
    let memory = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    dirs.extend(
        memory
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("terrane-"))
            .map(|entry| entry.path()),
    );
    let traces = traces();
    let user = test.root().join("user");
    let mut holding = 0;
    for path in dirs.iter().flat_map(|dir| files(dir)) {
        if fs::symlink_metadata(&path).is_ok_and(|it| it.is_symlink()) {
            continue;
        }
        let bytes = fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let holds = traces.iter().any(|trace| text.contains(&trace.text));
        if holds && !path.starts_with(&user) {
            holding += 1;
            let mode = fs::metadata(&path).map_or(0o600, |it| it.mode());
            assert_eq!(
                mode & 0o077,
                0,
                "{} can be read by others: {mode:o}",
                path.display()
            );
            // What an engine says has to be a file; it goes when its copy without secrets is whole.
            let is_said = path.extension().is_some_and(|it| it == "raw");
            let is_said = is_said || path.ends_with("token.txt"); // which has to be there
            let is_memory = path.starts_with("/dev/shm");
            assert!(is_said || is_memory, "{} lies on a disk", path.display());
        }
    }
    assert!(holding > 0, "the engine's variables lie nowhere");
    fs::write(test.root().join("go"), "").unwrap();
    drop(apply.wait().expect(0));
    garden.settle();
    searched.finish();
}

/// A process, its children, and whoever works in a home.
fn processes_below(parent: u32, home: &Path) -> Vec<u32> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let numbers = stat.rsplit_once(") ").map_or("", |(_, numbers)| numbers);
        let above = numbers
            .split(' ')
            .nth(1)
            .and_then(|it| it.parse::<u32>().ok());
        all.push((pid, above.unwrap_or(0)));
    }
    let home = home.display().to_string();
    let works_here = |pid: u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(&home)
    };
    let mut found: Vec<u32> = all
        .iter()
        .map(|(pid, _)| *pid)
        .filter(|pid| *pid == parent || works_here(*pid))
        .collect();
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        for (child, above) in &all {
            if *above == pid && !found.contains(child) {
                found.push(*child);
            }
        }
    }
    found
}
