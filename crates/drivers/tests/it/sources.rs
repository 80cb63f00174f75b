//! Services that keep secrets: who is asked, as whom, how often, and what is said when they refuse.
//!
//! AWS is `moto`, a server that answers as AWS does. Azure, what lends machines their keys, and what no Vault should say
//! (or only in a Pod) are answers written by hand after their published APIs. A real Vault: `vault`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use drivers::process::Environment;
use drivers::secrets::{SecretContext, SecretError, SecretSources, resolve};
use insta::assert_snapshot;
use model::base::error::Explain;
use testkit::{Issuer, Moto, ScriptedServer};

/// An asker with an environment, asking again and again.
pub(crate) struct Asker {
    env: BTreeMap<String, String>,
    sources: SecretSources,
    root: tempfile::TempDir,
}

impl Asker {
    pub(crate) fn new(env: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut all: BTreeMap<String, String> = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let home = root.path().display().to_string();
        all.insert("HOME".to_owned(), home);
        // No test may find out what machine it runs on.
        for (name, value) in [
            ("AWS_EC2_METADATA_DISABLED", "true"),
            ("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:9"),
        ] {
            all.entry(name.to_owned())
                .or_insert_with(|| value.to_owned());
        }
        Self {
            env: all,
            sources: SecretSources::default(),
            root,
        }
    }

    fn home(&self) -> &Path {
        self.root.path()
    }

    fn file(&self, path: &str, text: &str) -> String {
        let path = self.home().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.to_owned(), value.to_owned());
    }

    async fn ask(&self, reference: &str) -> Result<String, SecretError> {
        let env = Environment::from_iter(Vec::<(String, String)>::new());
        let around = SecretContext {
            asker: &self.env,
            root: self.home(),
            env: &env,
            sources: &self.sources,
        };
        let secret = resolve(&reference.parse()?, around).await?;
        Ok(secret.expose().to_owned())
    }

    pub(crate) async fn get(&self, reference: &str) -> String {
        let got = self.ask(reference).await;
        got.unwrap_or_else(|err| panic!("{}", told(&err)))
    }

    /// What is said of a failure, as a person reads it.
    pub(crate) async fn refusal(&self, reference: &str) -> String {
        let err = self.ask(reference).await.unwrap_err();
        told(&err)
    }
}

fn told(err: &SecretError) -> String {
    let mut lines = vec![err.to_string()];
    let mut cause = std::error::Error::source(err);
    while let Some(next) = cause {
        lines.push(next.to_string());
        cause = next.source();
    }
    // What a system says of a connection is its own affair.
    lines.truncate(3);
    lines.extend(err.hint().map(|hint| format!("hint: {hint}")));
    lines.join("\n")
}

const LOGIN: &str = r#"{"auth":{"client_token":"hvs.given-by-login","policies":["default"],"lease_duration":2764800}}"#;
const KV: &str = r#"{"request_id":"1","data":{"data":{"user":"root","password":"hunter2\n","port":5432},"metadata":{"version":3}}}"#;

#[tokio::test]
async fn vault_by_token_once_for_all_fields() {
    let vault = ScriptedServer::start(&[("GET /v1/kv/data/team/db%20one", 200, KV)]);
    let asker = Asker::new(&[
        ("VAULT_ADDR", &format!("{}/", vault.address())),
        ("VAULT_NAMESPACE", "admin"),
        ("VAULT_TOKEN", "hvs.a-token"),
    ]);
    assert_eq!(asker.get("vault:kv/team/db one#user").await, "root");
    assert_eq!(asker.get("vault:kv/team/db one#password").await, "hunter2");
    assert_eq!(asker.get("vault:kv/team/db one#port").await, "5432");
    let asked = vault.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].headers["x-vault-token"], "hvs.a-token");
    assert_eq!(asked[0].headers["x-vault-namespace"], "admin");
    assert_eq!(asked[0].headers["x-vault-request"], "true");
}

#[tokio::test]
async fn vault_by_each_login() {
    let issuer = Issuer::start();
    issuer.answer_job(&[("repository", "example/infra")]);
    let vault = ScriptedServer::start(&[
        ("POST /v1/auth/approle/login", 200, LOGIN),
        ("POST /v1/auth/jwt/login", 200, LOGIN),
        ("POST /v1/auth/ci/login", 200, LOGIN),
        ("POST /v1/auth/kubernetes/login", 200, LOGIN),
        ("GET /v1/kv/data/db", 200, KV),
    ]);
    let job = issuer.job_address();
    let ways: [&[(&str, &str)]; 5] = [
        &[("VAULT_ROLE_ID", "role-1"), ("VAULT_SECRET_ID", "proof-1")],
        &[("VAULT_ROLE", "deploy"), ("VAULT_JWT", "proof-2")],
        &[
            ("VAULT_ROLE", "deploy"),
            ("VAULT_AUTH_PATH", "ci"),
            ("ACTIONS_ID_TOKEN_REQUEST_URL", &job),
            ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", Issuer::BEARER),
        ],
        &[("VAULT_ROLE", "deploy"), ("VAULT_K8S_TOKEN_FILE", "TOKEN")],
        &[],
    ];
    for way in ways {
        let mut asker = Asker::new(way);
        asker.set("VAULT_ADDR", vault.address());
        let token = asker.file("token", "proof-3\n");
        if way.iter().any(|(_, value)| *value == "TOKEN") {
            asker.set("VAULT_K8S_TOKEN_FILE", &token);
        }
        if way.is_empty() {
            asker.file(".vault-token", "hvs.of-a-person\n");
        }
        assert_eq!(asker.get("vault:kv/db#user").await, "root");
    }
    let asked = vault.asked();
    let seen: Vec<String> = asked
        .iter()
        .map(|asked| {
            let token = asked.headers.get("x-vault-token").cloned();
            let proof = asked.body.split("\"jwt\":\"eyJ").collect::<Vec<_>>();
            let body = if proof.len() > 1 {
                "a token of the job".to_owned()
            } else {
                asked.body.clone()
            };
            let line = asked.line.replace(" HTTP/1.1", "");
            format!("{line} {}{body}", token.unwrap_or_default())
        })
        .collect();
    assert_snapshot!(seen.join("\n"), @r#"
    POST /v1/auth/approle/login {"role_id":"role-1","secret_id":"proof-1"}
    GET /v1/kv/data/db hvs.given-by-login
    POST /v1/auth/jwt/login {"role":"deploy","jwt":"proof-2"}
    GET /v1/kv/data/db hvs.given-by-login
    POST /v1/auth/ci/login a token of the job
    GET /v1/kv/data/db hvs.given-by-login
    POST /v1/auth/kubernetes/login {"role":"deploy","jwt":"proof-3"}
    GET /v1/kv/data/db hvs.given-by-login
    GET /v1/kv/data/db hvs.of-a-person
    "#);
}

#[tokio::test]
async fn vault_refuses_in_words_that_give_nothing_away() {
    let refused =
        r#"{"errors":["1 error occurred:\n\t* invalid role or secret ID proof-of-somebody"]}"#;
    let echo = r#"{"errors":["invalid secret ID: proof-of-somebody"]}"#;
    let denied = r#"{"errors":["permission denied"]}"#;
    let vault = ScriptedServer::start(&[
        ("GET /v1/kv/data/denied", 403, denied),
        ("GET /v1/kv/data/broken", 200, "{\"data\":\"hush\"}"),
        ("GET /v1/kv/data/moved", 307, ""),
        ("GET /v1/kv/data/big", 200, &"x".repeat((1 << 20) + 1)),
        ("POST /v1/auth/approle/login", 400, echo),
        ("POST /v1/auth/other/login", 400, refused),
    ]);
    let asker = Asker::new(&[
        ("VAULT_ADDR", vault.address()),
        ("VAULT_TOKEN", "hvs.hush-hush-hush"),
    ]);
    let mut said = Vec::new();
    for path in ["denied", "missing", "broken", "moved", "big"] {
        said.push(asker.refusal(&format!("vault:kv/{path}#key")).await);
    }
    for mount in ["approle", "other"] {
        let asker = Asker::new(&[
            ("VAULT_ADDR", vault.address()),
            ("VAULT_ROLE_ID", "role-1"),
            ("VAULT_SECRET_ID", "proof-of-somebody"),
            ("VAULT_AUTH_PATH", mount),
        ]);
        said.push(asker.refusal("vault:kv/db#key").await);
    }
    let nobody = Asker::new(&[("VAULT_ADDR", vault.address())]);
    said.push(nobody.refusal("vault:kv/db#key").await);
    for address in [
        "http://vault.example.io:8200",
        "https://me:hush@vault.example.io",
    ] {
        let asker = Asker::new(&[
            ("VAULT_ADDR", address),
            ("VAULT_TOKEN", "hvs.hush-hush-hush"),
        ]);
        said.push(asker.refusal("vault:kv/db#key").await);
    }
    let said = said.join("\n\n").replace(vault.address(), "http://VAULT");
    assert!(
        !said.contains("proof-of-somebody") && !said.contains("hush"),
        "{said}"
    );
    assert_snapshot!(said, @"
    could not read `kv/denied` of Vault at `http://VAULT`
    `http://VAULT/v1/kv/data/denied` answered 403: permission denied
    hint: the token needs a policy with `read` on `kv/data/denied`

    could not read `kv/missing` of Vault at `http://VAULT`
    `http://VAULT/v1/kv/data/missing` answered 404
    hint: is it there (`vault kv get kv/missing`), and is `kv` a KV store of version 2?

    could not read `kv/broken` of Vault at `http://VAULT`
    cannot parse the response of `http://VAULT/v1/kv/data/broken`

    could not read `kv/moved` of Vault at `http://VAULT`
    `http://VAULT/v1/kv/data/moved` answered 307

    could not read `kv/big` of Vault at `http://VAULT`
    `http://VAULT/v1/kv/data/big` answered more than 1048576 bytes

    could not log in to Vault at `http://VAULT` with AppRole
    `http://VAULT/v1/auth/approle/login` answered 400: invalid secret ID: (secret)
    hint: is the role allowed on `auth/approle`, and is the proof still valid?

    could not log in to Vault at `http://VAULT` with AppRole
    `http://VAULT/v1/auth/other/login` answered 400: invalid role or secret ID (secret)
    hint: is the role allowed on `auth/other`, and is the proof still valid?

    cannot log in to Vault: no login method is configured
    hint: set `VAULT_TOKEN`; or `VAULT_ROLE_ID` and `VAULT_SECRET_ID`; or `VAULT_ROLE` with `VAULT_JWT` or in a GitHub job or a Pod; or `vault login` first

    could not read `kv/db` of Vault at `http://vault.example.io:8200`
    `http://vault.example.io:8200/v1/kv/data/db` is not an `https://` address
    hint: use `https://`; `VAULT_CACERT` names a certificate of your own

    could not reach Vault
    its address contains a user name or a password
    hint: leave it out of `VAULT_ADDR`: a login proves the identity
    ");
}

#[tokio::test]
async fn aws_by_keys_of_each_kind() {
    let moto = Moto::start();
    moto.put_secret("sources/db", r#"{"user":"root","password":"hunter2"}"#);
    moto.put_parameter("/sources/token", "from-a-parameter");
    let endpoint = moto.endpoint();
    let base = [
        ("AWS_REGION", Moto::REGION),
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
    ];

    let mut asker = Asker::new(&base);
    asker.set("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE");
    asker.set("AWS_SECRET_ACCESS_KEY", "hush");
    assert_eq!(
        asker.get("aws-secretsmanager:sources/db").await,
        r#"{"user":"root","password":"hunter2"}"#
    );
    assert_eq!(
        asker.get("aws-secretsmanager:sources/db#password").await,
        "hunter2"
    );
    assert_eq!(
        asker.get("aws-ssm:/sources/token").await,
        "from-a-parameter"
    );

    // A profile, with its region.
    let mut asker = Asker::new(&[
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_PROFILE", "work"),
    ]);
    let keys = "[default]\naws_access_key_id = other\n\n[work]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = hush\n";
    asker.file(".aws/credentials", keys);
    asker.file(
        ".aws/config",
        &format!("[profile work]\nregion = {}\n", Moto::REGION),
    );
    assert_eq!(
        asker.get("aws-ssm:/sources/token").await,
        "from-a-parameter"
    );

    // A role for the token of another issuer, through the real STS of moto.
    asker = Asker::new(&base);
    let token = asker.file("token", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzdG9yeSJ9.");
    asker.set("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/deploy");
    asker.set("AWS_WEB_IDENTITY_TOKEN_FILE", &token);
    assert_eq!(
        asker.get("aws-ssm:/sources/token").await,
        "from-a-parameter"
    );

    let mut said = vec![
        asker.refusal("aws-ssm:/sources/missing").await,
        asker.refusal("aws-secretsmanager:sources/missing").await,
        asker.refusal("aws-secretsmanager:sources/db#nothing").await,
    ];
    said.push(Asker::new(&base).refusal("aws-ssm:/sources/token").await);
    said.push(Asker::new(&[]).refusal("aws-ssm:/sources/token").await);
    let mut asker = Asker::new(&base);
    asker.set("AWS_PROFILE", "missing");
    asker.file(".aws/credentials", keys);
    let home = asker.home().display().to_string();
    said.push(
        asker
            .refusal("aws-ssm:/sources/token")
            .await
            .replace(&home, "HOME"),
    );
    assert_snapshot!(said.join("\n\n").replace(&endpoint, "http://AWS"), @"
    could not read the parameter `/sources/missing` of AWS Systems Manager
    `http://AWS/` answered 400: ParameterNotFound: Parameter /sources/missing not found.
    hint: is it there, in the region `eu-west-1`? `AWS_REGION` chooses another

    could not read the secret `sources/missing` of AWS Secrets Manager
    `http://AWS/` answered 404: ResourceNotFoundException: Secrets Manager can't find the specified secret.
    hint: is it there, in the region `eu-west-1`? `AWS_REGION` chooses another

    `aws-secretsmanager:sources/db` has no `nothing`

    cannot log in to AWS: no login method is configured
    hint: set `AWS_ROLE_ARN`, with `AWS_WEB_IDENTITY_TOKEN_FILE` or in a GitHub job with `id-token: write`; or run where the machine has a role; or set `AWS_PROFILE`, or `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`

    cannot log in to AWS: no login method is configured
    hint: set `AWS_ROLE_ARN`, with `AWS_WEB_IDENTITY_TOKEN_FILE` or in a GitHub job with `id-token: write`; or run where the machine has a role; or set `AWS_PROFILE`, or `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`

    the profile `missing` of `HOME/.aws/credentials` has no keys
    hint: `aws configure export-credentials --format env` prints keys for the environment
    ");
}

const LENT: &str = r#"{"AccessKeyId":"ASIALENT","SecretAccessKey":"hush","Token":"a-session","Expiration":"2030-01-01T00:00:00Z"}"#;
const PARAMETER: &str =
    r#"{"Parameter":{"Name":"/a","Value":"hunter2","Type":"SecureString","Version":1}}"#;

#[tokio::test]
async fn aws_lends_keys_to_containers_machines_and_jobs() {
    let issuer = Issuer::start();
    issuer.answer_job(&[("repository", "example/infra")]);
    let sts = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIALENT</AccessKeyId>\
               <SecretAccessKey>hush</SecretAccessKey><SessionToken>a-session</SessionToken></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
    let far = ScriptedServer::start(&[("POST /", 200, PARAMETER)]);
    let near = ScriptedServer::start(&[
        ("GET /v2/credentials/1", 200, LENT),
        ("PUT /latest/api/token", 200, "a-machine-token"),
        (
            "GET /latest/meta-data/iam/security-credentials/",
            200,
            "deploy\n",
        ),
        (
            "GET /latest/meta-data/iam/security-credentials/deploy",
            200,
            LENT,
        ),
        ("POST /", 200, sts),
    ]);
    let container = format!("{}/v2/credentials/1", near.address());
    let job = issuer.job_address();
    let ways: [&[(&str, &str)]; 3] = [
        &[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &container),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "a-container-token"),
        ],
        &[
            ("AWS_EC2_METADATA_DISABLED", "false"),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", near.address()),
        ],
        &[
            ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/deploy"),
            ("ACTIONS_ID_TOKEN_REQUEST_URL", &job),
            ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", Issuer::BEARER),
            ("AWS_ENDPOINT_URL_STS", near.address()),
        ],
    ];
    for way in ways {
        let mut asker = Asker::new(way);
        asker.set("AWS_ENDPOINT_URL_SSM", far.address());
        asker.set("AWS_REGION", "eu-west-1");
        assert_eq!(asker.get("aws-ssm:/a").await, "hunter2");
    }
    for asked in far.asked() {
        assert_eq!(asked.headers["x-amz-security-token"], "a-session");
        assert_eq!(asked.headers["x-amz-target"], "AmazonSSM.GetParameter");
        let authorization = &asked.headers["authorization"];
        assert!(
            authorization.starts_with("AWS4-HMAC-SHA256 Credential=ASIALENT/")
                && authorization.contains("/eu-west-1/ssm/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, Signature="),
            "{authorization}"
        );
        assert_eq!(asked.body, r#"{"Name":"/a","WithDecryption":true}"#);
    }
    assert_eq!(far.asked().len(), 3);
    let near = near.asked();
    assert_eq!(near[0].headers["authorization"], "a-container-token");
    assert_eq!(
        near[2].headers["x-aws-ec2-metadata-token"],
        "a-machine-token"
    );
    assert!(
        near[4].body.starts_with("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fdeploy&RoleSessionName=terrane&WebIdentityToken=eyJ"),
        "{}",
        near[4].body
    );
}

const SECRET: &str = r#"{"value":"hunter2","id":"https://corp.vault.azure.net/secrets/db/0123","attributes":{"enabled":true}}"#;
const TOKEN: &str = r#"{"token_type":"Bearer","expires_in":3599,"access_token":"an-azure-token"}"#;

#[tokio::test]
async fn azure_by_each_login() {
    let issuer = Issuer::start();
    issuer.answer_job(&[("repository", "example/infra")]);
    let azure = ScriptedServer::start(&[
        ("GET /secrets/db?api-version=7.4", 200, SECRET),
        ("GET /secrets/db/0123?api-version=7.4", 200, SECRET),
        ("POST /tenant-1/oauth2/v2.0/token", 200, TOKEN),
        (
            "GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fvault.azure.net",
            200,
            TOKEN,
        ),
        (
            "GET /msi?api-version=2019-08-01&resource=https%3A%2F%2Fvault.azure.net",
            200,
            TOKEN,
        ),
    ]);
    let job = issuer.job_address();
    let endpoint = format!("{}/msi", azure.address());
    let ways: [&[(&str, &str)]; 6] = [
        &[("AZURE_FEDERATED_TOKEN_FILE", "TOKEN")],
        &[("ARM_OIDC_TOKEN", "proof-of-a-job")],
        &[
            ("ACTIONS_ID_TOKEN_REQUEST_URL", &job),
            ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", Issuer::BEARER),
        ],
        &[("AZURE_CLIENT_SECRET", "proof-of-old")],
        &[("AZURE_POD_IDENTITY_AUTHORITY_HOST", azure.address())],
        &[
            ("IDENTITY_ENDPOINT", &endpoint),
            ("IDENTITY_HEADER", "a-header"),
        ],
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let mut asker = Asker::new(way);
        let token = asker.file("token", "proof-of-a-pod");
        if number == 0 {
            asker.set("AZURE_FEDERATED_TOKEN_FILE", &token);
        }
        if number < 4 {
            asker.set("AZURE_TENANT_ID", "tenant-1");
            asker.set("AZURE_CLIENT_ID", "app-1");
        }
        asker.set("AZURE_AUTHORITY_HOST", azure.address());
        let reference = format!("azure-keyvault:{}/db", azure.host());
        assert_eq!(asker.get(&reference).await, "hunter2");
        assert_eq!(asker.get(&reference).await, "hunter2");
        if number == 0 {
            assert_eq!(asker.get(&format!("{reference}/0123")).await, "hunter2");
        }
    }
    let seen: Vec<String> = azure
        .asked()
        .iter()
        .map(|asked| {
            let by = asked.headers.get("authorization").cloned();
            let by = by.or_else(|| asked.headers.get("x-identity-header").cloned());
            let mut body = asked.body.replace('&', "\n    ");
            if let Some((before, _)) = body.split_once("client_assertion=eyJ") {
                body = format!("{before}client_assertion=<a token of the job>");
            }
            let line = format!("{} {}{body}", asked.line, by.unwrap_or_default());
            line.trim_end().to_owned()
        })
        .collect();
    assert_snapshot!(seen.join("\n"), @"
    POST /tenant-1/oauth2/v2.0/token grant_type=client_credentials
        client_id=app-1
        scope=https%3A%2F%2Fvault.azure.net%2F.default
        client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer
        client_assertion=proof-of-a-pod
    GET /secrets/db?api-version=7.4 Bearer an-azure-token
    GET /secrets/db/0123?api-version=7.4 Bearer an-azure-token
    POST /tenant-1/oauth2/v2.0/token grant_type=client_credentials
        client_id=app-1
        scope=https%3A%2F%2Fvault.azure.net%2F.default
        client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer
        client_assertion=proof-of-a-job
    GET /secrets/db?api-version=7.4 Bearer an-azure-token
    POST /tenant-1/oauth2/v2.0/token grant_type=client_credentials
        client_id=app-1
        scope=https%3A%2F%2Fvault.azure.net%2F.default
        client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer
        client_assertion=<a token of the job>
    GET /secrets/db?api-version=7.4 Bearer an-azure-token
    POST /tenant-1/oauth2/v2.0/token grant_type=client_credentials
        client_id=app-1
        scope=https%3A%2F%2Fvault.azure.net%2F.default
        client_secret=proof-of-old
    GET /secrets/db?api-version=7.4 Bearer an-azure-token
    GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fvault.azure.net
    GET /secrets/db?api-version=7.4 Bearer an-azure-token
    GET /msi?api-version=2019-08-01&resource=https%3A%2F%2Fvault.azure.net a-header
    GET /secrets/db?api-version=7.4 Bearer an-azure-token
    ");
}

#[tokio::test]
async fn azure_refuses_in_words_that_give_nothing_away() {
    let denied = r#"{"error":{"code":"Forbidden","message":"Caller is not authorized to perform action on resource."}}"#;
    let login = r#"{"error":"invalid_client","error_description":"AADSTS7000215: Invalid client secret provided: proof-of-somebody.\r\nTrace ID: 1"}"#;
    let azure = ScriptedServer::start(&[
        ("GET /secrets/denied?api-version=7.4", 403, denied),
        ("POST /tenant-1/oauth2/v2.0/token", 200, TOKEN),
        ("POST /tenant-2/oauth2/v2.0/token", 401, login),
    ]);
    let mut said = Vec::new();
    for tenant in ["tenant-1", "tenant-2"] {
        let asker = Asker::new(&[
            ("AZURE_TENANT_ID", tenant),
            ("AZURE_CLIENT_ID", "app-1"),
            ("AZURE_CLIENT_SECRET", "proof-of-somebody"),
            ("AZURE_AUTHORITY_HOST", azure.address()),
        ]);
        for name in ["denied", "missing"] {
            let reference = format!("azure-keyvault:{}/{name}", azure.host());
            said.push(asker.refusal(&reference).await);
        }
    }
    let nobody = Asker::new(&[]);
    said.push(nobody.refusal("azure-keyvault:corp/db").await);
    said.push(nobody.refusal("azure-keyvault:vault.example.io/db").await);
    let said = said.join("\n\n").replace(azure.host(), "AZURE");
    assert!(!said.contains("proof-of-somebody"), "{said}");
    assert_snapshot!(said, @"
    could not read the secret `denied` of the key vault `AZURE`
    `http://AZURE/secrets/denied` answered 403: Caller is not authorized to perform action on resource.
    hint: the caller needs the role `Key Vault Secrets User` on it, or an access policy with `get`

    could not read the secret `missing` of the key vault `AZURE`
    `http://AZURE/secrets/missing` answered 404
    hint: `az keyvault secret list --vault-name AZURE` shows what there is

    could not log in to Azure as `app-1` with a client secret
    `http://AZURE/tenant-2/oauth2/v2.0/token` answered 401: AADSTS7000215: Invalid client secret provided: (secret).
    hint: is `AZURE_CLIENT_SECRET` the application's, and still valid?

    could not log in to Azure as `app-1` with a client secret
    `http://AZURE/tenant-2/oauth2/v2.0/token` answered 401: AADSTS7000215: Invalid client secret provided: (secret).
    hint: is `AZURE_CLIENT_SECRET` the application's, and still valid?

    cannot log in to Azure: no login method is configured
    hint: set `AZURE_TENANT_ID` and `AZURE_CLIENT_ID`, with `AZURE_FEDERATED_TOKEN_FILE`, in a GitHub job with `id-token: write`, or with `AZURE_CLIENT_SECRET`; or run where there is a managed identity; or `az login` first

    `vault.example.io` is not an Azure key vault: give its name, or its host below `vault.azure.net`
    ");
}
