//! `moto` for tests: the AWS APIs that tests use, one server per test process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use crate::services::service::{
    Service, ServiceSpec, Sharing, answers, program, request, temp_dir,
};

pub struct Moto(&'static Service);

impl Moto {
    pub const REGION: &str = "eu-west-1";

    /// The server of this test process; it starts on first use and stops with the process.
    pub fn start() -> Self {
        static SHARED: OnceLock<Service> = OnceLock::new();
        Self(SHARED.get_or_init(start))
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port())
    }

    /// Stores a secret. Names are shared by all tests of a process.
    pub fn put_secret(&self, name: &str, text: &str) {
        let body = format!(
            "{{\"Name\":{},\"SecretString\":{}}}",
            quoted(name),
            quoted(text)
        );
        self.call("secretsmanager", "secretsmanager.CreateSecret", &body);
    }

    /// Stores an encrypted parameter.
    pub fn put_parameter(&self, name: &str, value: &str) {
        let body = format!(
            "{{\"Name\":{},\"Value\":{},\"Type\":\"SecureString\"}}",
            quoted(name),
            quoted(value)
        );
        self.call("ssm", "AmazonSSM.PutParameter", &body);
    }

    /// Creates a table for the engines' state locks, in their region.
    pub fn put_lock_table(&self, name: &str, region: &str) {
        let body = format!(
            "{{\"TableName\":{},\"BillingMode\":\"PAY_PER_REQUEST\",\
             \"AttributeDefinitions\":[{{\"AttributeName\":\"LockID\",\"AttributeType\":\"S\"}}],\
             \"KeySchema\":[{{\"AttributeName\":\"LockID\",\"KeyType\":\"HASH\"}}]}}",
            quoted(name)
        );
        self.call_in(region, "dynamodb", "DynamoDB_20120810.CreateTable", &body);
    }

    fn call(&self, service: &str, operation: &str, body: &str) {
        self.call_in(Self::REGION, service, operation, body);
    }

    fn call_in(&self, region: &str, service: &str, operation: &str, body: &str) {
        let scope = format!("20260101/{region}/{service}/aws4_request");
        let text = format!(
            "POST / HTTP/1.0\r\nHost: 127.0.0.1\r\nX-Amz-Target: {operation}\r\nContent-Type: application/x-amz-json-1.1\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=test/{scope}, SignedHeaders=host, Signature=none\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = request(self.0.port(), &text).expect("an answer");
        assert!(answer.contains(" 200 "), "{operation}: {answer}");
    }
}

fn start() -> Service {
    let moto = program("moto", "TERRANE_TEST_MOTO", &["moto/5.2.5/bin/moto_server"]);
    let recipe = |_: &Path| ServiceSpec {
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
    Service::start(temp_dir("moto"), Sharing::Shared, recipe, is_ready)
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('\n', "\\n"))
}
