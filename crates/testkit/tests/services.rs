//! Each service starts, answers, and a test's own one can be stopped and started again.

use std::net::TcpStream;

use testkit::{Azurite, Dns, FakeGcs, Minio, Postgres};

#[test]
fn postgres_has_a_database_for_each_test() {
    let shared = Postgres::start();
    let (one, other) = (shared.database(), shared.database());
    assert_ne!(one, other);
    shared.psql(&one, "CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (7)");
    assert_eq!(shared.psql(&one, "SELECT a FROM t"), "7\n");
    assert_eq!(shared.psql(&other, "SHOW fsync"), "on\n");
    assert_eq!(
        shared.psql(&other, "SELECT to_regclass('t') IS NULL"),
        "t\n"
    );
}

#[test]
fn a_postgres_of_its_own_comes_back_with_what_it_committed() {
    let own = Postgres::own(&["synchronous_commit=on"]);
    let database = own.database();
    own.psql(
        &database,
        "CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (7)",
    );
    own.stop();
    own.start_again();
    assert_eq!(own.psql(&database, "SELECT a FROM t"), "7\n");
}

#[test]
fn minio_is_there_and_can_be_gone() {
    let shared = Minio::start();
    assert_ne!(shared.bucket(), shared.bucket());
    let own = Minio::own();
    let address = own.endpoint().replace("http://", "");
    assert!(TcpStream::connect(&address).is_ok());
    own.stop();
    assert!(TcpStream::connect(&address).is_err());
    own.start_again();
    assert!(TcpStream::connect(&address).is_ok());
}

#[test]
fn azurite_has_a_container_for_each_test() {
    let shared = Azurite::start();
    assert_ne!(shared.container(), shared.container());
    assert!(shared.proxy().certificate().is_file());
}

#[test]
fn fake_gcs_has_a_bucket_for_each_test() {
    let shared = FakeGcs::start();
    assert_ne!(shared.bucket(), shared.bucket());
}

#[test]
fn name_servers_can_change_their_minds() {
    let dns = Dns::start("www A 192.0.2.1");
    dns.change("www A 192.0.2.2");
    dns.stop();
}
