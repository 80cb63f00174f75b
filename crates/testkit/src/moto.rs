//! `moto` for tests: the APIs of AWS as far as tests use them, one server for each test process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::service::{Kept, Recipe, Service, answers, program, request, temp_dir};

pub struct Moto(&'static Service);

impl Moto {
    pub const REGION: &str = "eu-west-1";

    /// The server of this test process; it is started when first asked for, and stops with the process.
    pub fn start() -> Self {
        static SHARED: OnceLock<Service> = OnceLock::new();
        Self(SHARED.get_or_init(start))
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port())
    }

    /// Keeps a secret. Names are shared by all tests of a process.
    pub fn put_secret(&self, name: &str, text: &str) {
        let body = format!(
            "{{\"Name\":{},\"SecretString\":{}}}",
            quoted(name),
            quoted(text)
        );
        self.call("secretsmanager", "secretsmanager.CreateSecret", &body);
    }

    /// Keeps a parameter, encrypted.
    pub fn put_parameter(&self, name: &str, value: &str) {
        let body = format!(
            "{{\"Name\":{},\"Value\":{},\"Type\":\"SecureString\"}}",
            quoted(name),
            quoted(value)
        );
        self.call("ssm", "AmazonSSM.PutParameter", &body);
    }

    /// Makes a bucket and says its name.
    pub fn bucket(&self) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let text = format!(
            "PUT /{name} HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: {}\r\nContent-Length: 0\r\n\r\n",
            authorization("us-east-1", "s3")
        );
        let answer = request(self.0.port(), &text).expect("an answer");
        assert!(answer.contains(" 200 "), "no bucket: {answer}");
        name
    }

    /// Makes a table of `DynamoDB` for locks, as engines want it.
    pub fn lock_table(&self, name: &str) {
        let body = format!(
            "{{\"TableName\":{},\"BillingMode\":\"PAY_PER_REQUEST\",\
             \"AttributeDefinitions\":[{{\"AttributeName\":\"LockID\",\"AttributeType\":\"S\"}}],\
             \"KeySchema\":[{{\"AttributeName\":\"LockID\",\"KeyType\":\"HASH\"}}]}}",
            quoted(name)
        );
        self.call("dynamodb", "DynamoDB_20120810.CreateTable", &body);
    }

    fn call(&self, service: &str, operation: &str, body: &str) {
        let authorization = authorization(Self::REGION, service);
        let text = format!(
            "POST / HTTP/1.0\r\nHost: 127.0.0.1\r\nX-Amz-Target: {operation}\r\nContent-Type: application/x-amz-json-1.1\r\n\
             Authorization: {authorization}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = request(self.0.port(), &text).expect("an answer");
        assert!(answer.contains(" 200 "), "{operation}: {answer}");
    }
}

/// It looks at nothing but the scope.
fn authorization(region: &str, service: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential=test/20260101/{region}/{service}/aws4_request, SignedHeaders=host, Signature=none"
    )
}

fn start() -> Service {
    let moto = program("moto", "TERRANE_TEST_MOTO", &["moto/5.2.5/bin/moto_server"]);
    let recipe = |_: &Path| Recipe {
        name: "moto",
        args: vec![
            moto.clone().into(),
            "--host=127.0.0.1".into(),
            "--port=PORT".into(),
        ],
        env: BTreeMap::new(),
        signal: "KILL",
    };
    let is_ready = |port| answers(port, "GET /moto-api/ HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    Service::start(temp_dir("moto"), Kept::Shared, recipe, is_ready)
}

/// As a text of JSON.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('\n', "\\n"))
}
