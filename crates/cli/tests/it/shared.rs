//! A home that machines share: a database and a bucket, without any server.

use std::fs;

use testkit::{Minio, Postgres, TestTerrane};

use crate::project::{HEAD, stack, terrane};
use crate::story::files;

const KEY: &str = "c2hhcmVkLWJ5LWFsbC1tYWNoaW5lcy1pbi10ZXN0cyE=";

/// A machine of its own, with the same project, the same key and the same home.
fn machine(home: &str, minio: &Minio) -> TestTerrane {
    let test = terrane()
        .env("TERRANE_HOME", home)
        .env("TERRANE_KEY", &format!("terrane-key-1 abcd1234 {KEY}"))
        .env("AWS_ENDPOINT_URL", &minio.endpoint())
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", Minio::ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", Minio::SECRET_KEY);
    test.write("terrane.hcl", &format!("{HEAD}{}", stack("app", "")))
        .write("app/main.tf", "output \"text\" { value = \"shared\" }\n");
    test
}

fn home(minio: &Minio) -> (String, String) {
    let bucket = minio.bucket();
    let database = Postgres::start().database();
    (format!("{database}&blobs=s3://{bucket}/states"), bucket)
}

#[test]
fn what_one_machine_applies_another_knows() {
    let minio = Minio::start();
    let (home, bucket) = home(&minio);
    let (one, two) = (machine(&home, &minio), machine(&home, &minio));
    drop(one.cli(&["apply", "--auto-approve"]).expect(0));
    let output = two.cli(&["output", "app", "text", "--raw"]).expect(0);
    assert_eq!(output.stdout, "shared");
    let again = two.cli(&["plan", "--detailed-exitcode"]);
    drop(again.expect(0));
    drop(two.cli(&["state", "verify"]).expect(0));
    let keys = minio.keys(&bucket).join("\n");
    assert!(keys.contains("states/segments/"), "{keys}");
    assert!(keys.contains("states/keys/"), "{keys}");
    // Neither the key nor what opens the bucket lies in a file of the machine.
    for path in files(&one.root().join("user")) {
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        let told = text.contains(KEY) || text.contains(Minio::SECRET_KEY);
        assert!(!told, "{}", path.display());
    }
}

#[test]
fn without_its_bucket_a_home_takes_nothing() {
    let minio = Minio::own();
    let (home, _) = home(&minio);
    let test = machine(&home, &minio).env("TERRANE_PATIENCE", "1");
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    minio.stop();
    test.write("app/main.tf", "output \"text\" { value = \"second\" }\n");
    let lost = test.cli(&["apply", "--auto-approve"]);
    assert_eq!(lost.code, Some(1), "{lost}");
    minio.start_again();
    drop(test.cli(&["apply", "--auto-approve"]).expect(0));
    let output = test.cli(&["output", "app", "text", "--raw"]).expect(0);
    assert_eq!(output.stdout, "second");
}
