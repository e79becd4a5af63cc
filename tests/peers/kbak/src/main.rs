// Runs the backup that a configuration describes: `kbak <configuration>`, a file of JSON.
//
// This is the backup command of OSO's kafka-backup, whose engine is the crate kafka-backup-core.
use kafka_backup_core::{backup::BackupEngine, Config};

async fn run_backup(config: Config) -> Result<(), kafka_backup_core::Error> {
    BackupEngine::new(config).await?.run().await
}

fn main() {
    let path = std::env::args().nth(1).expect("usage: kbak <configuration>");
    let text = std::fs::read_to_string(path).expect("the configuration cannot be read");
    let config = serde_json::from_str(&text).expect("the configuration is not valid");
    let runtime = tokio::runtime::Runtime::new().expect("tokio does not start");
    runtime.block_on(run_backup(config)).expect("the backup failed");
}
