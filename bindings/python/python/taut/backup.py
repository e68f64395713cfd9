"""Listing backups, and restoring databases from them."""

from __future__ import annotations

import dataclasses
import datetime
import os

from taut import _taut

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclasses.dataclass(frozen=True)
class Backup:
    """A backup in a backup directory."""

    #: Number of the backup in its directory.
    number: int
    #: Number of the last commit in the backup. Commits are counted from 1.
    commit: int
    #: Time of the state that the backup holds, in UTC.
    time: datetime.datetime
    #: Bytes of all files that the backup needs.
    bytes: int
    #: Bytes written for this backup. Files that earlier backups hold are not written again.
    written_bytes: int
    #: Number of an earlier backup from which the log is complete up to this one: any point in time between the two can
    #: be restored. None if there is no such log.
    log_since: int | None


@dataclasses.dataclass(frozen=True)
class Restored:
    """A database that was restored."""

    #: Number of the backup that was restored.
    backup: int
    #: Number of the last commit in the database.
    commit: int
    #: Time of that commit, or of the backup if no commits were replayed.
    time: datetime.datetime
    #: Number of commits replayed on top of the backup.
    replayed_commits: int
    #: Bytes of the database's blocks.
    bytes: int


def backups(directory: str | os.PathLike[str]) -> list[Backup]:
    """Returns the complete backups in a directory, sorted by number.

    Raises OperationalError when there is no backup directory or another process uses it, InternalError when the
    manifest of a backup is damaged.
    """
    return [backup_of(row) for row in _taut.backups(os.path.expanduser(directory))]


def restore(
    directory: str | os.PathLike[str],
    database: str | os.PathLike[str],
    *,
    backup: int | None = None,
    time: datetime.datetime | str | None = None,
) -> Restored:
    """Restores a backup to a new database.

    Parameters
    ----------
    directory: the backup directory.
    database: the directory of the new database, which must be empty or not exist.
    backup: number of the backup; by default the last one.
    time: point in time up to which commits are restored, inclusive. A datetime, or a string such as
        ``'2026-11-27 13:36:16.5+02:00'``; without an offset it is in UTC. A point between two backups requires the
        log: see `Connection.backup`.

    Raises
    ------
    OperationalError: the directory of the database is not empty, there is no backup directory, or another process uses
    it.
    ProgrammingError: there is no such backup, or no backup covers the point in time.
    InternalError: a file of the backup is damaged; the message names the file and the table.
    ValueError: `time` is a string that is not a time.
    """
    row = _taut.restore(os.path.expanduser(directory), os.path.expanduser(database), backup, _micros_of(time))
    number, commit, micros, replayed, size = row
    return Restored(number, commit, _time_of(micros), replayed, size)


def backup_of(row: tuple[int, int, int, int, int, int | None]) -> Backup:
    number, commit, micros, size, written, log_since = row
    return Backup(number, commit, _time_of(micros), size, written, log_since)


def _time_of(micros: int) -> datetime.datetime:
    return _EPOCH + micros * _MICROSECOND


def _micros_of(time: datetime.datetime | str | None) -> int | None:
    if time is None:
        return None
    if isinstance(time, datetime.datetime):
        aware = time if time.tzinfo is not None else time.replace(tzinfo=datetime.timezone.utc)
        return (aware - _EPOCH) // _MICROSECOND
    if not isinstance(time, str):
        raise TypeError(f"time is a datetime or a str, not {type(time).__name__}")
    micros = _taut.parse_time(time)
    if micros is None:
        raise ValueError(f"time={time!r}; write for example '2026-11-27 13:36:16'")
    return micros
