//! Nothing secret leaves in clear: marked secrets are put in wherever they can enter, and everything that comes out is
//! searched for them. What is encrypted is opened by the official `sops`.

use model::stage::facts::SensitiveFacts;
use testkit::{AgeKey, GitHttp, Sops};

use super::*;

const PASSWORD: &str = "hunter2-marked-password";
const TOKEN: &str = "marked-token-of-the-forge";

struct Wanted {
    on_sensitive: SensitiveFacts,
    encrypt_all: bool,
    values: Value,
}

async fn publish_to(
    world: &World,
    url: &str,
    wanted: &Wanted,
) -> Result<Published, PublishFactsError> {
    let place = Destination {
        name: "runtime".to_owned(),
        repository: url.to_owned(),
        branch: "facts".to_owned(),
        owns: BranchOwnership::Branch,
        on_sensitive: wanted.on_sensitive,
        encrypt_all: wanted.encrypt_all,
        credential: Some(Secret::new(TOKEN)),
        declared: declared("runtime", "facts"),
    };
    let output = |value: Value, sensitive| OutputValue { value, sensitive };
    let outputs = BTreeMap::from([
        ("password".to_owned(), output(json!(PASSWORD), true)),
        ("host".to_owned(), output(json!("db.example.io"), false)),
    ]);
    let block = Publish {
        place: "runtime".to_owned(),
        path: "prod/db.yaml".to_owned(),
        contract: None,
        partial: Vec::new(),
        values: wanted.values.as_object().cloned(),
        holds_sensitive: true,
        plain: Vec::new(),
        files: vec!["out/db.yaml".to_owned()],
    };
    let asker = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]);
    let env = Environment::new();
    let publication = Publication {
        root: world.dir.path(),
        tree: world.dir.path(),
        asker: &asker,
        places: &BTreeMap::from([("runtime".to_owned(), place)]),
        stack: &"one".parse().unwrap(),
        state_name: "one",
        run: None,
        state: None,
        source: None,
        at: "2026-01-10T12:00:00Z".parse().unwrap(),
        outputs: &outputs,
        blocks: &[block],
        sinks: &[],
        locations: &[],
        cluster: cluster(&env),
        is_destroyed: false,
        stacks: &BTreeMap::new(),
        take_over: None,
    };
    let mut done = publish(&world.control, &publication).await?;
    Ok(done.places.pop().unwrap())
}

/// Every object of the repository, and every file that is kept on this machine.
fn all_that_is_left(world: &World) -> Vec<u8> {
    let mut all = world
        .in_branch(&["cat-file", "--batch-all-objects", "--batch"])
        .into_bytes();
    for dir in ["home", "out", "facts.git"] {
        collect(&world.dir.path().join(dir), &mut all);
    }
    all
}

fn collect(path: &Path, all: &mut Vec<u8>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), all);
        }
    } else if let Ok(bytes) = fs::read(path) {
        all.extend(bytes);
    }
}

fn holds(all: &[u8], secret: &str) -> bool {
    use base64::Engine as _;
    let coats = [
        secret.to_owned(),
        base64::engine::general_purpose::STANDARD.encode(secret),
        base64::engine::general_purpose::STANDARD.encode(format!("x-access-token:{secret}")),
        secret.replace('-', "%2D"),
    ];
    coats
        .iter()
        .any(|coat| all.windows(coat.len()).any(|part| part == coat.as_bytes()))
}

fn nothing_is_left(world: &World, said: &str) {
    let mut all = all_that_is_left(world);
    all.extend(said.bytes());
    for secret in [PASSWORD, TOKEN] {
        assert!(!holds(&all, secret), "{secret} is in what came out: {said}");
    }
}

#[tokio::test]
async fn no_secret_comes_out_in_any_coat() {
    let world = World::new().await;
    world.in_branch(&["config", "http.receivepack", "true"]);
    let server = GitHttp::start(world.dir.path(), &format!("x-access-token:{TOKEN}"));
    let url = server.url("facts.git");
    let key = AgeKey::generate();
    let rules = format!(
        "creation_rules:\n  - path_regex: prod/.*\n    age: {}\n",
        key.recipient
    );
    let values = json!({"db": {"host": "db.example.io", "password": PASSWORD}});

    let mut wanted = Wanted {
        on_sensitive: SensitiveFacts::Refuse,
        encrypt_all: false,
        values,
    };
    let refused = publish_to(&world, &url, &wanted).await.unwrap_err();
    let source = std::error::Error::source(&refused).unwrap().to_string();
    insta::assert_snapshot!(source, @"`prod/db.yaml` would contain sensitive values in plain text: `db.password`");
    nothing_is_left(&world, &format!("{refused:?} {refused} {source}"));

    wanted.on_sensitive = SensitiveFacts::Encrypt;
    let refused = publish_to(&world, &url, &wanted).await.unwrap_err();
    assert!(
        refused.hint().unwrap().contains(".sops.yaml"),
        "{refused:?}"
    );

    fs::write(world.dir.path().join(".sops.yaml"), rules).unwrap();
    let first = publish_to(&world, &url, &wanted).await.unwrap();
    assert!(first.files[0].encrypted);
    nothing_is_left(&world, &format!("{first:?}"));
    let text = world.file("prod/db.yaml");
    assert!(
        text.contains("db.example.io") && text.contains("ENC[AES256_GCM"),
        "{text}"
    );

    // Nobody here has the key, and it is still the same file.
    let again = publish_to(&world, &url, &wanted).await.unwrap();
    assert!(!again.is_new);

    // Who has it reads what was meant, with the official tool.
    key.save(&world.dir.path().join("age.key"));
    fs::write(world.dir.path().join("db.yaml"), text).unwrap();
    let sops = Sops::with_key(&world.dir.path().join("age.key"));
    let plain = sops.run(world.dir.path(), &["decrypt", "db.yaml"]);
    assert!(plain.contains(PASSWORD), "{plain}");
    for file in ["age.key", "db.yaml"] {
        fs::remove_file(world.dir.path().join(file)).unwrap();
    }

    wanted.encrypt_all = true;
    publish_to(&world, &url, &wanted).await.unwrap();
    let text = world.file("prod/db.yaml");
    assert!(!text.contains("db.example.io"), "{text}");
    nothing_is_left(&world, &text);

    (wanted.encrypt_all, wanted.on_sensitive) = (false, SensitiveFacts::Reference);
    publish_to(&world, &url, &wanted).await.unwrap();
    insta::assert_snapshot!(world.file("prod/db.yaml"), @r#"
    # Written by terrane: stack `one` of project `p`. An edit stops the next publication.
    db:
      host: "db.example.io"
      password: "ref+terrane://one/password"
    "#);
    nothing_is_left(&world, "");
}
