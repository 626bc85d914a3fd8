"""The administrator of access: ACLs created and deleted, SCRAM credentials set, replaced and removed. It also gives
`share.version` another level.
"""

from headrace.broker.features import SHARE
from headrace.wire.acls import Acl, AclOperation, AclPatternType, AclPermission, AclResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message
from headrace.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from headrace.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.simulation.actor import Actor, Ask, Life
from tests.simulation.models.access import Access, Item, State
from tests.simulation.network import Pending

ACLS = tuple(
    Acl(AclResourceType.TOPIC, name, pattern, "User:guest", "*", operation, permission)
    for name, pattern in (("alpha", AclPatternType.LITERAL), ("b", AclPatternType.PREFIXED))
    for operation in (AclOperation.READ, AclOperation.WRITE)
    for permission in (AclPermission.ALLOW, AclPermission.DENY)
)
USERS = ("u0", "u1")
MECHANISMS = (1, 2)
ITERATIONS = 4096
UNSAFE_DOWNGRADE = 3


class Guard(Actor):
    @property
    def access(self) -> Access:
        return self.world.model(Access)

    def live(self) -> Life:
        while True:
            match self.rng.choices(("nothing", "create", "delete", "credentials", "level"), (8, 6, 4, 6, 3))[
                0
            ]:
                case "nothing":
                    yield None
                case "create":
                    yield from self.create(self.rng.sample(ACLS, self.rng.randint(1, 3)))
                case "delete":
                    yield from self.delete(self.rng.choice(ACLS))
                case "credentials":
                    yield from self.alter(self.rng.choice(USERS), self.rng.choice(MECHANISMS))

                case "level":
                    yield from self.give_level(self.rng.choice((1, 2)))

    def give_level(self, level: int) -> Ask:
        update = FeatureUpdateKey(feature=SHARE, max_version_level=level, upgrade_type=UNSAFE_DOWNGRADE)
        yield from self.change(UpdateFeaturesRequest(feature_updates=[update]), 1, {SHARE: level})

    def create(self, acls: list[Acl]) -> Ask:
        creations = [
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
        yield from self.change(CreateAclsRequest(creations=creations), 3, dict.fromkeys(acls, True))

    def delete(self, acl: Acl) -> Ask:
        """One entry, or all of its resource."""
        is_one = self.rng.random() < 0.5
        wanted = DeleteAclsFilter(
            resource_type_filter=acl.resource_type,
            resource_name_filter=acl.resource_name,
            pattern_type_filter=acl.pattern_type,
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=acl.operation if is_one else AclOperation.ANY,
            permission_type=acl.permission if is_one else AclPermission.ANY,
        )
        of_resource = [one for one in ACLS if one.resource_name == acl.resource_name]
        meant = [acl] if is_one else of_resource
        yield from self.change(DeleteAclsRequest(filters=[wanted]), 3, dict.fromkeys(meant, False))

    def alter(self, user: str, mechanism: int) -> Ask:
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[])
        if self.rng.random() < 0.3:
            request.deletions = [ScramCredentialDeletion(name=user, mechanism=mechanism)]
            yield from self.change(request, 0, {(user, mechanism): None})
            return
        salt = self.rng.randbytes(8)
        request.upsertions = [
            ScramCredentialUpsertion(
                name=user,
                mechanism=mechanism,
                iterations=ITERATIONS,
                salt=salt,
                salted_password=self.rng.randbytes(32 if mechanism == 1 else 64),
            )
        ]
        yield from self.change(request, 0, {(user, mechanism): salt})

    def change(self, request: Message, version: int, states: dict[Item, State]) -> Ask:
        self.access.will(states)

        def answered(pending: Pending) -> None:
            if _is_done(pending.response):
                self.access.told(states)

        yield from self.ask(request, version, answered=answered)


def _is_done(response: Message) -> bool:
    """There is nothing to remove where nothing is: that is what was asked for, too."""
    if getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
        return False
    for results in ("results", "filter_results"):
        for result in getattr(response, results, ()):
            if result.error_code not in (ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND):
                return False
    return True
