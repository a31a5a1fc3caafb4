"""Finds the files of a run that earlier runs have not taken, in each of the places that the run reads.

A place is a directory, a pattern, or the directory of files that are named one by one (``folder/.``). Files
of one place are taken in the order of their URIs, so the last one that was taken stands for those before it.
A run over several places keeps the last file of each in its position. The position of a run over one place
does not name the place: files that come before that position and lie elsewhere are refused.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.ingest.inputs import HIDDEN, InputFile, Position
from airflow_hive_federation.storage.filesystem import canonical

_OLDER_PLACES = 20
"""The most places of earlier runs only that a position keeps."""


class Places:
    """The places of a run, and the files that were taken there.

    :param inputs: the URIs of the run, as :func:`.find_inputs` takes them.
    :param files: the files that they name, in order.
    :param position: the committed position.
    :param name: the name of that position.
    """

    def __init__(
        self, inputs: Sequence[str], files: Sequence[InputFile], position: Position | None, name: str
    ) -> None:
        self._files, self._name = files, name
        listed = {file.uri for file in files}
        uris = [canonical(uri) for uri in inputs]
        self._named = {uri for uri in uris if uri in listed and not _is_pattern(uri)}
        self._places = list(dict.fromkeys(f"{_parent(uri)}/." if uri in self._named else uri for uri in uris))
        #: Files up to this one that no place covers may have been taken, or passed by.
        self._floor: str | None = None
        #: The last file taken of each place of this run and of earlier ones; empty if there is none.
        self._last: dict[str, str] = {}
        #: The file that an earlier run has begun, and the place by which it did.
        self._begun: Position | None = None
        self._begun_by = ""
        if position is not None:
            if position.offset is not None and position.uri in listed:
                self._begun = position
            self._continue(position)
        self._forget_older()
        self._unread: set[str] = set()

    def unread(self) -> list[tuple[InputFile, Position]]:
        """Return the files that were not ingested whole, each with the position to begin at.

        A file that an earlier run has begun comes first: the position keeps the place inside one file only.

        :raises ConfigurationError: a file comes before the position of earlier runs, which read another
            place; or earlier runs took files of its directory one by one.
        """
        rest: list[tuple[InputFile, Position]] = []
        for file in self._files:
            if self._begun is not None and file.uri == self._begun.uri:
                at = Position(uri=file.uri, offset=self._begun.offset, line=self._begun.line)
                rest.insert(0, (file, at))
            elif not self._is_taken(file.uri):
                self._refuse_passed_over(file.uri)
                rest.append((file, Position(uri=file.uri, offset=0)))
        self._unread = {file.uri for file, _ in rest}
        return rest

    def finish(self, uri: str) -> None:
        """Note that a file was read to its end."""
        self._unread.discard(uri)
        places = self._places
        if self._begun is not None and uri == self._begun.uri:
            # Files of other places may come before this one, and be unread.
            before = [file for file in self._unread if file < uri]
            places = [place for place in places if not any(self._reads(place, file) for file in before)]
            self._note(uri, [self._begun_by])
        self._note(uri, [place for place in places if self._reads(place, uri)])

    def position(self, reached: Position) -> Position:
        """Return a position inside a file, or behind it, with the last files of all places."""
        places = {**dict.fromkeys(self._places, ""), **self._last}
        if len(places) == 1:
            return reached
        return replace(
            reached,
            place=None if reached.offset is None else self._place_of(reached.uri),
            floor=self._floor,
            places={place: last.removeprefix(f"{_folder(place)}/") for place, last in places.items()},
        )

    def _place_of(self, uri: str) -> str:
        """Return the place by which a file that is being read was begun."""
        if self._begun is not None and uri == self._begun.uri:
            return self._begun_by
        return next(place for place in self._places if self._reads(place, uri))

    def _continue(self, position: Position) -> None:
        """Go on from the position of an earlier run."""
        if position.places is None:
            # The places of that run are unknown.
            self._floor = position.uri
            for place in self._places:
                if _holds(place, position.uri):
                    before = self._last_before(place, position.uri)
                    self._last[place] = before if self._begun else position.uri
                    self._begun_by = self._begun_by or place
        else:
            self._floor = position.floor
            self._last = {
                place: f"{_folder(place)}/{last}" if last else "" for place, last in position.places.items()
            }
            self._begun_by = position.place or ""
        if position.offset is not None and self._begun is None:
            self._leave(position.uri)

    def _leave(self, uri: str) -> None:
        """Go on without a file that an earlier run has begun: the next position forgets that."""
        holding = [place for place in self._places if _holds(place, uri)]
        if not all(map(_is_of_named_files, holding)):
            # The file has vanished.
            self._note(uri, [self._begun_by])
        elif holding or self._is_taken(uri):
            # Later runs would take it for one that was read to its end.
            raise ConfigurationError(
                f"An earlier run of {self._name!r} has stopped within {uri}, which the inputs do not name.",
                remedy="Name it, too, so that it is read to its end. If it is gone, give the files another "
                "name (--name, or name= of the operator).",
                path=uri,
            )
        else:
            # Later runs that name it are refused.
            self._floor = max(self._floor or "", uri)

    def _last_before(self, place: str, uri: str) -> str:
        files = (file.uri for file in self._files)
        return max((file for file in files if file < uri and self._reads(place, file)), default="")

    def _forget_older(self) -> None:
        """Forget places of earlier runs only, if there are many; their files are refused from then on."""
        older = sorted(
            (last, place)
            for place, last in self._last.items()
            if place not in self._places and place != self._begun_by
        )
        for last, place in older[: max(0, len(older) - _OLDER_PLACES)]:
            del self._last[place]
            self._floor = max(self._floor or "", last) or None

    def _note(self, uri: str, places: Iterable[str]) -> None:
        for place in places:
            self._last[place] = max(self._last.get(place, ""), uri)

    def _reads(self, place: str, uri: str) -> bool:
        """Return whether a run over a place takes a file."""
        if not _holds(place, uri):
            return False
        if _is_of_named_files(place):
            return uri in self._named or place not in self._places
        if _is_pattern(place):
            is_of_hidden = place.rpartition("/")[2].startswith(HIDDEN)
            return is_of_hidden or not uri.rpartition("/")[2].startswith(HIDDEN)
        below = uri.removeprefix(f"{_folder(place)}/")
        return not any(part.startswith(HIDDEN) for part in below.split("/"))

    def _is_taken(self, uri: str) -> bool:
        return any(
            uri <= last and self._reads(place, uri) and (uri in self._named or not _is_of_named_files(place))
            for place, last in self._last.items()
        )

    def _refuse_passed_over(self, uri: str) -> None:
        for place, last in self._last.items():
            if _is_of_named_files(place) and _holds(place, uri) and uri <= last:
                raise ConfigurationError(
                    f"{uri} may have been taken: earlier runs of {self._name!r} took files of its directory "
                    f"one by one, up to {last}.",
                    remedy="Name the files that are new, or give the files another name (--name, or name= of "
                    "the operator).",
                    path=uri,
                )
        if self._floor is not None and uri <= self._floor:
            raise ConfigurationError(
                f"{uri} would be left out: it comes before {self._floor}, the position {self._name!r} of "
                "earlier runs, which read another place.",
                remedy="If earlier runs have taken it, there is nothing to do. Otherwise give the files of "
                "each place a name of their own (--name, or name= of the operator).",
                path=uri,
            )


def _parent(uri: str) -> str:
    return uri.rpartition("/")[0]


def _is_pattern(uri: str) -> bool:
    return "*" in uri.rpartition("/")[2]


def _is_of_named_files(place: str) -> bool:
    return place.endswith("/.")


def _folder(place: str) -> str:
    """Return the directory in which all files of a place lie."""
    return _parent(place) if _is_pattern(place) or _is_of_named_files(place) else place.rstrip("/")


def _holds(place: str, uri: str) -> bool:
    """Return whether a file lies in a place; a run may leave it out there, because it is hidden."""
    if _is_of_named_files(place):
        return _parent(uri) == _parent(place)
    if _is_pattern(place):
        return _parent(uri) == _parent(place) and fnmatch.fnmatchcase(
            uri.rpartition("/")[2], place.rpartition("/")[2]
        )
    return uri.startswith(f"{_folder(place)}/")
