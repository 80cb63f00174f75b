//! Secrets in every encoding in which they occur.

use serde_json::json;

use super::*;

fn mask(values: &[&str]) -> Mask {
    let secrets: Vec<Secret> = values.iter().copied().map(Secret::new).collect();
    Mask::new(&secrets)
}

#[track_caller]
fn check(secret: &str, text: &str, expected: &str) {
    assert_eq!(mask(&[secret]).mask_text(text), expected);
}

/// Colour codes are invisible in a log, so a secret with colour codes inside is still readable.
#[test]
fn colours_part_no_secret() {
    check(
        "hunter2very-Secret99",
        "is hunter2very-\u{1b}[01;31m\u{1b}[KSecr\u{1b}[m\u{1b}[Ket99 so",
        "is (secret) so",
    );
    check(
        "hunter2very-Secret99",
        r#"{"a":"hunter2very-\u001b[31mSecret99\u001b[0m"}"#,
        r#"{"a":"(secret)\u001b[0m"}"#,
    );
    check(
        "hunter2!",
        "\u{1b}[31mhunter\u{1b}[0m 2!",
        "\u{1b}[31mhunter\u{1b}[0m 2!",
    );
}

#[test]
fn every_coat_is_known() {
    check(
        "hunter2!",
        "pw=hunter2!, again hunter2!",
        "pw=(secret), again (secret)",
    );
    check(
        "say \"hi\" & go",
        r#"{"a":"say \"hi\" & go"}"#,
        r#"{"a":"(secret)"}"#,
    );
    check(
        "say \"hi\" & go",
        r#"{"a":"say \"hi\" \u0026 go"}"#,
        r#"{"a":"(secret)"}"#,
    );
    check(
        "a b/c?def",
        "https://x/?q=a%20b%2Fc%3Fdef&r=1",
        "https://x/?q=(secret)&r=1",
    );
    check(
        "a b/c?def",
        "https://x/?q=a+b%2fc%3fdef",
        "https://x/?q=(secret)",
    );
    check(
        "a b/c?def",
        "https://x/?q=a+b%2Fc%3Fdef",
        "https://x/?q=(secret)",
    );
}

#[test]
fn other_encoders_are_known() {
    check(
        "pa/ss w$rd",
        "mysql://u:pa%2Fss%20w$rd@h",
        "mysql://u:(secret)@h",
    );
    check("Tök<en>&1", r#""T\u00f6k<en>&1""#, r#""(secret)""#);
    check("Tök<en>&1", "Tök&lt;en&gt;&amp;1", MASKED);
    check("it's mine", r"echo 'it'\''s mine'", "echo '(secret)'");
    check("hunter2!", "68756e7465723221", MASKED);
    check("hunter2!", "68:75:6e:74:65:72:32:21", MASKED);
    check("hunter2!", r"\x68\x75\x6e\x74\x65\x72\x32\x21", MASKED);
    // urllib's `quote`, `repr`, and doubly encoded ASCII-only JSON
    check("p@ss/w0rd&", "p%40ss/w0rd%26", MASKED);
    check(r"p@ss\word", r"'p@ss\\word'", "'(secret)'");
    check("p\"assé", r#""\"p\\\"ass\\u00e9\"""#, r#""\"(secret)\"""#);
    check("Hunter-Two", "x-key: hunter-two", "x-key: (secret)");
    // bash's `printf %q` and Python's `repr` for text with control characters
    let secret = "pa\"s's\\w0rd-\tx9";
    check(secret, r#"$'pa"s\'s\\w0rd-\tx9'"#, "$'(secret)'");
    check("pa\"ss\\w0rd-\tx9", r#"'pa"ss\\w0rd-\tx9'"#, "'(secret)'");
}

#[test]
fn json_of_whatever_writer_is_known_once_and_twice() {
    let secret = "p@ss/w0rd&\"x\"\\y<z>éend";
    for json in [
        // PHP; Go (an engine's jsonencode); Python; .NET
        r#"p@ss\/w0rd&\"x\"\\y<z>\u00e9end"#,
        r#"p@ss/w0rd\u0026\"x\"\\y\u003cz\u003eéend"#,
        r#"p@ss/w0rd&\"x\"\\y<z>\u00e9end"#,
        r"p@ss/w0rd\u0026\u0022x\u0022\\y\u003Cz\u003E\u00E9end",
    ] {
        check(
            secret,
            &format!("{{\"a\":\"{json}\"}}"),
            r#"{"a":"(secret)"}"#,
        );
        let again = json!(json).to_string();
        check(secret, &again, r#""(secret)""#);
        let by_an_engine = again.replace('&', r"\u0026").replace('<', r"\u003c");
        let by_an_engine = by_an_engine.replace('>', r"\u003e");
        check(secret, &by_an_engine, r#""(secret)""#);
    }
}

#[test]
fn quoting_and_coding_of_other_forms_is_known() {
    check("it's mine", r#"echo 'it'"'"'s mine'"#, "echo '(secret)'");
    check("it's mine", "pw: 'it''s mine'", "pw: '(secret)'");
    check("it's mine", r"+ echo it\'s\ mine", "+ echo (secret)");
    check("it's mine", "<a>it&#x27;s mine</a>", "<a>(secret)</a>");
    // The `auth` of a registry in the data of a Secret, and JSON there
    check(
        "hunter2-hunter2",
        "ZFhObGNqcG9kVzUwWlhJeUxXaDFiblJsY2pJPQ==",
        "ZFhObGNqcG(secret)pJPQ==",
    );
    check(
        r#"hunter2"hunter2"#,
        "eyJwdyI6Imh1bnRlcjJcImh1bnRlcjIifQ==",
        "eyJwdyI6Im(secret)IifQ==",
    );
}

#[test]
fn a_broken_line_hides_nothing() {
    let text = "-----\n  aHVudGVyMi1o\n  dW50ZXIyLWh1bnRlcjI=\n";
    check("hunter2-hunter2-hunter2", text, "-----\n  (secret)\n");
    check(
        "hunter2-hunter2",
        r#"{"m":"hunter2\\nhunter2-h\nunter2"}"#,
        r#"{"m":"hunter2\\n(secret)"}"#,
    );
    check(
        "one\ntwo-three\nfour",
        "key: |\n    one\n    two-three\n    four\n",
        "key: |\n    (secret)\n",
    );
}

#[test]
fn a_secret_that_was_cut_is_none_to_be_read() {
    check(
        "hunter2-and-more",
        "page: hunter2-an… and hunter2-and-more",
        "page: (secret)… and (secret)",
    );
    check("hunter2-and-more", "hu… is a word", "hu… is a word");
    let mask = Mask::new(&[Secret::new("hunter2-and-more")]);
    let mut value = serde_json::json!({ "seen": "page: hunter2-an…" });
    mask.mask_value(&mut value);
    assert_eq!(value, serde_json::json!({ "seen": "page: (secret)…" }));
}

#[test]
fn what_is_cut_says_so() {
    let all = |text: &str| [1, 3, 4].map(|most| cut(text, most));
    assert_eq!(all("née"), ["n…", "née", "née"]);
}

/// A document whose strings contain escaped JSON is searched too.
#[test]
fn a_document_with_escapes_in_escapes_may_hold_anything() {
    let mask = Mask::new(&[Secret::new("p@ss\"w&x")]);
    assert!(mask.may_be_in(br#"{"v":"{\"cfg\":\"{\\\"pw\\\":\\\"x\\\"}\"}"}"#));
    assert!(!mask.may_be_in(br#"{"v":"plain"}"#));
    assert!(!mask.may_be_in(br#"{"v":"\"plain\"\u00e9\n"}"#));
}

#[test]
fn a_token_is_found_as_it_stands_and_in_headers() {
    let token = Secret::new("kJ3v-9aXqLmB7_zR2tYw0PdFhG5s");
    let secrets = [Secret::new("hunter2!")];
    let mask = Mask::with_token(&secrets, &token);
    let said = "pw=hunter2! TF_HTTP_PASSWORD=kJ3v-9aXqLmB7_zR2tYw0PdFhG5s\n";
    assert_eq!(
        mask.mask_text(said),
        "pw=(secret) TF_HTTP_PASSWORD=(secret)\n"
    );
    // `run:` and the token, as engines send them.
    let header = "Authorization: Basic cnVuOmtKM3YtOWFYcUxtQjdfelIydFl3MFBkRmhHNXM=";
    assert_eq!(
        mask.mask_text(header),
        "Authorization: Basic cnVuOm(secret)"
    );
}

#[test]
fn base64_is_found_wherever_it_begins() {
    // printf 'hunter2-hunter2', 'xhunter2-hunter2', 'user:hunter2-hunter2' | base64
    check("hunter2-hunter2", "aHVudGVyMi1odW50ZXIy", MASKED);
    check("hunter2-hunter2", "eGh1bnRlcjItaHVudGVyMg==", "eG(secret)");
    check(
        "hunter2-hunter2",
        "dXNlcjpodW50ZXIyLWh1bnRlcjI=",
        "dXNlcjp(secret)",
    );
    // printf %s v1v1v1v1 | base64, echo v1v1v1v1 | base64, and both without padding
    check("v1v1v1v1", "djF2MXYxdjE=", MASKED);
    check("v1v1v1v1", "djF2MXYxdjEK", MASKED);
    check("v1v1v1v1", "djF2MXYxdjE.", "(secret).");
}

#[test]
fn overlapping_secrets_leave_no_tail() {
    assert_eq!(
        mask(&["abcdef", "defghi"]).mask_text("xabcdefghix"),
        "x(secret)x"
    );
}

#[test]
fn lines_of_a_key_file_are_masked_one_by_one() {
    let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END KEY-----";
    check(key, "read MIIEvQIBADANBgkqhkiG ok", "read (secret) ok");
    let list = "alpha-pass\nbeta-pass\n";
    check(list, "it was beta-pass", "it was (secret)");
    // Lines that occur in every such file are not secret.
    let file = "metadata:\n  name: x\ndefault\n";
    check(file, "no metadata: in default", "no metadata: in default");
}

#[test]
fn short_and_common_values_are_reported_not_masked() {
    let mask = mask(&["true", "5432", "Password", "long enough"]);
    assert_eq!(
        mask.mask_text("true 5432 Password long enough"),
        "true 5432 Password (secret)"
    );
    assert_eq!(mask.short(), [0, 1, 2]);
}

#[test]
fn a_short_number_is_masked_where_it_stands_alone() {
    let mut value = json!({"port": 5432, "text": "port 5432", "same": "5432", "n": 543});
    mask(&["5432", "543", "true"]).mask_value(&mut value);
    assert_eq!(
        value,
        json!({"port": "(secret)", "text": "port 5432", "same": "(secret)", "n": 543})
    );
}

#[test]
fn values_are_masked_inside_out() {
    let mut value = json!({"a": ["x hunter2!", 12_345_678], "hunter2!": true, "n": 1});
    mask(&["hunter2!", "12345678"]).mask_value(&mut value);
    assert_eq!(
        value,
        json!({"a": ["x (secret)", "(secret)"], "(secret)": true, "n": 1})
    );
}

proptest::proptest! {
    #[test]
    fn no_secret_stays_in_any_text(
        secrets in proptest::collection::vec("[a-c]{6,9}", 1..4),
        words in proptest::collection::vec("[a-c ]{0,12}", 0..6),
        picks in proptest::collection::vec(0_usize..3, 0..6),
    ) {
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let hidden = picks.iter().map(|pick| secrets[pick % secrets.len()]);
        let text: String = words.iter().map(String::as_str).chain(hidden).collect();
        let masked = mask(&secrets).mask_text(&text);
        for secret in secrets {
            proptest::prop_assert!(!masked.contains(secret), "{text} became {masked}");
        }
    }
}

/// State and plan JSON escape the encodings further: other case, single lines, texts next to others.
#[test]
fn a_document_is_looked_at_as_it_is_meant() {
    let file = "{\n  \"private_key_id\": \"b7f3c0ffee991234\"\n}\n";
    let mask = Mask::new(&[
        Secret::new("Tr0ub4dor&3<Horse>"),
        Secret::new(file),
        Secret::new("smile-\u{1f600}-A1"),
    ]);
    for document in [
        r#"{"up":"TR0UB4DOR\u00263\u003cHORSE\u003e"}"#,
        r#"{"line":"\"private_key_id\": \"b7f3c0ffee991234\""}"#,
        r#"{"low":"smile-\ud83d\ude00-a1"}"#,
        r#"{"cut":"Tr0ub4dor\u2026"}"#,
        r#"{"cut":"Tr0ub4dor…"}"#,
    ] {
        assert!(mask.may_be_in(document.as_bytes()), "{document}");
        let mut value: Value = serde_json::from_str(document).unwrap();
        mask.mask_value(&mut value);
        assert!(value.to_string().contains(MASKED), "{value}");
    }
}

#[test]
fn the_beginning_of_a_secret_that_was_cut_is_hidden_in_a_log_too() {
    let mut stream = MaskStream::new(Mask::new(&[Secret::new("back/slash-Pw-9d")]));
    let mut said = stream.push("cut back/slash-P…\n".as_bytes());
    said.extend(stream.push("{\"@message\":\"cut back/slash-P…\\n\"}\n".as_bytes()));
    said.extend(stream.finish());
    let said = String::from_utf8(said).unwrap();
    assert!(!said.contains("slash"), "{said}");
}
