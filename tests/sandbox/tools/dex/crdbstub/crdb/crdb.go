// Package crdb has what Dex's storage in SQL databases uses: transactions in PostgreSQL, without CockroachDB's retries.
package crdb

import "database/sql"

// ExecuteTx runs fn in a transaction, which it commits if fn succeeds.
func ExecuteTx(db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		if rollback := tx.Rollback(); rollback != nil {
			return rollback
		}
		return err
	}
	return tx.Commit()
}
