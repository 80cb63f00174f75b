//! Master keys on disk.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

#[test]
fn the_first_use_makes_a_key_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("terrane/master.key");
    let made = Keyring::open_or_create(&path).unwrap();
    let again = Keyring::open_or_create(&path).unwrap();
    assert!(made.created() && !again.created());
    assert_eq!(made.lines(), again.lines());
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with(&format!("terrane-key-1 {} ", made.id())),
        "one line, its id in it"
    );
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn of_many_that_make_it_at_once_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("terrane/master.key");
    let made: Vec<Keyring> = std::thread::scope(|scope| {
        let open = || Keyring::open_or_create(&path).unwrap();
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(open)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(made.iter().filter(|keyring| keyring.created()).count(), 1);
    assert!(made.iter().all(|one| one.lines() == made[0].lines()));
}

#[test]
fn what_is_not_a_master_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("master.key");
    let good = Keyring::generate().unwrap().lines();
    let half = format!("{good}secret\n");
    for text in [
        "",
        "# nothing else",
        "terrane-key-1 id c2hvcnQ=",
        "terrane-key-2 id AAAA",
        "secret",
        &half,
    ] {
        fs::write(&path, text).unwrap();
        let err = Keyring::open_or_create(&path).unwrap_err();
        assert!(
            matches!(err, OpenKeyringError::Shape { .. }),
            "{text}: {err}"
        );
    }
}

#[test]
fn secrets_are_not_shown() {
    let (new, old) = (Keyring::generate().unwrap(), Keyring::generate().unwrap());
    let both = new.followed_by(&old);
    let shown = format!("Keyring({}, {})", both.id(), old.id());
    assert_eq!(format!("{both:?}"), shown);
    assert_eq!(format!("{:?}", both.first().key), "[secret]");
}

#[test]
fn the_first_of_several_wraps() {
    let (new, old) = (Keyring::generate().unwrap(), Keyring::generate().unwrap());
    let both = new.clone().followed_by(&old).followed_by(&old);
    let read = Keyring::from_text(&both.to_text(), "the pipe").unwrap();
    assert_eq!(read.ids().collect::<Vec<_>>(), [new.id(), old.id()]);
    assert_eq!(read.id(), new.id());
}

#[test]
fn an_age_identity_opens_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, identity) = (dir.path().join("m.age"), dir.path().join("id.txt"));
    let (mine, other) = (
        age::x25519::Identity::generate(),
        age::x25519::Identity::generate(),
    );
    let keyring = Keyring::generate().unwrap();
    let sealed = age::encrypt_and_armor(&mine.to_public(), keyring.lines().as_bytes());
    fs::write(&path, sealed.unwrap()).unwrap();
    let write = |one: &age::x25519::Identity| {
        use age::secrecy::ExposeSecret as _;
        fs::write(&identity, one.to_string().expose_secret()).unwrap();
    };
    write(&mine);
    let file = AgeIdentity::File(identity.clone());
    let opened = Keyring::open_age(&path, &file).unwrap();
    assert_eq!(opened.lines(), keyring.lines());
    write(&other);
    let err = Keyring::open_age(&path, &file).unwrap_err();
    assert!(matches!(err, OpenKeyringError::Age { .. }), "{err}");
}
