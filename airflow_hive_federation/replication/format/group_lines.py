"""Defines the record of a group's dump, which lies beside the dump of one member. Pure.

::

    <dump of a member>/group/
        ends.jsonl      the transactions that ended in any member's database, in the source's order
        members.jsonl   the members' dumps, in the order of publication; it is written last
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.json_values import Fields, JsonObject
from airflow_hive_federation.replication.format import values

ENDS = "group/ends.jsonl"
MEMBERS = "group/members.jsonl"


@dataclass(frozen=True, kw_only=True)
class GroupMember:
    """The part of a policy in the dump of its group.

    :param group: name of the group.
    :param policy: name of the policy.
    :param dump: URI of its dump; if it is idle, of the dump from which its target was last loaded.
    :param event_id: the event that the target reaches.
    :param idle: the target only has to record the event.
    """

    group: str
    policy: str
    dump: str
    event_id: int
    idle: bool

    @classmethod
    def from_json(cls, value: object) -> GroupMember:
        """Read a line.

        :raises ValueError: a field is missing, or has another type.
        """
        fields = Fields(value)
        return cls(
            group=fields.needed("group", json_values.text),
            policy=fields.needed("policy", values.name),
            dump=fields.needed("dump", values.location),
            event_id=fields.needed("event_id", json_values.count),
            idle=fields.needed("idle", json_values.flag),
        )

    def to_json(self) -> JsonObject:
        return vars(self)
