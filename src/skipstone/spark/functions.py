"""Public methods of the JVM as functions of Scala, so that many of them run in one py4j call.

py4j calls one method of one object. ``java.lang.invoke`` makes a function of a method, which Scala
applies to each element of a collection (``Jvm.joined``), and a chain of methods is one function
(``Functions.call``). Nothing is compiled, and only methods that py4j can call are called.

A step is a method without parameters, ``class.method``, or a static one with a single parameter,
``class.method(type)``. Every step takes what the one before returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from .versions import JavaObject, JvmAccess


_NODE: Final = "org.apache.spark.sql.catalyst.trees.TreeNode"
_EXPRESSION: Final = "org.apache.spark.sql.catalyst.expressions.Expression"
_CONF: Final = "org.apache.spark.sql.internal.SQLConf"
_EXECUTION: Final = "org.apache.spark.sql.execution."
_RUNNING: Final = f"{_EXECUTION}SQLExecution.getQueryExecution(long)"

NODE_NAME: Final = (f"{_NODE}.nodeName",)
SUBQUERIES: Final = (
    "org.apache.spark.sql.catalyst.plans.QueryPlan.subqueriesAll",
    "scala.collection.Seq.size",
)
JOIN_KIND: Final = (
    "org.apache.spark.sql.catalyst.plans.logical.Join.joinType",
    "java.lang.Object.toString",
)
SCANNED: Final = (
    f"{_EXECUTION}FileSourceScanExec.relation",
    f"{_EXECUTION}datasources.HadoopFsRelation.location",
)
CHILDREN: Final = (f"{_NODE}.children", "scala.collection.Seq.size")
TO_JSON: Final = (f"{_NODE}.toJSON",)
TYPE_JSON: Final = (f"{_EXPRESSION}.dataType", "org.apache.spark.sql.types.DataType.json")
TYPE_TEXT: Final = (f"{_EXPRESSION}.dataType", "org.apache.spark.sql.types.DataType.simpleString")
CLASS_NAME: Final = ("java.lang.Object.getClass", "java.lang.Class.getSimpleName")
QUERY_NUMBER: Final = (_RUNNING, f"{_EXECUTION}QueryExecution.id")
OPTIMIZED: Final = (_RUNNING, f"{_EXECUTION}QueryExecution.optimizedPlan")
#: the numbers of the bits that are set
POSITIONS: Final = (
    "java.util.BitSet.valueOf(byte[])",
    "java.util.BitSet.stream",
    "java.util.stream.IntStream.toArray",
)


class Functions:
    """Makes functions of one JVM, each once."""

    def __init__(self, jvm: JvmAccess) -> None:
        self._jvm = jvm
        self._made: dict[tuple[str, ...], JavaObject] = {}
        self._calls: dict[tuple[str, ...], Callable[[Any], Any]] = {}
        self._lookup = jvm.static("java.lang.invoke.MethodHandles", "publicLookup")()

    def of(self, *steps: str) -> JavaObject:
        """The steps as a ``scala.Function1``."""
        found = self._made.get(steps)
        if found is None:
            handle = self._handle(steps[0])
            for step in steps[1:]:
                handle = self._handles("filterReturnValue")(handle, self._handle(step))
            found = self._made[steps] = self._function(handle)
        return found

    def call(self, *steps: str) -> Callable[[Any], Any]:
        """The steps as a function of Python: one call to the JVM."""
        found = self._calls.get(steps)
        if found is None:
            found = self._calls[steps] = self._callable(self.of(*steps))
        return found

    def identity(self) -> JavaObject:
        """The function that returns its argument."""
        if () not in self._made:
            predef = self._jvm.module("scala.Predef")
            self._made[()] = getattr(predef, "$conforms")()
        return self._made[()]

    def settings(self, separator: str) -> str:
        """The settings that were made in the session of this thread, ``key -> value``, with a
        separator between them."""
        key = (_CONF,)
        if key not in self._calls:
            text = self._class("java.lang.String")
            join = self._method("scala.collection.immutable.Map", "mkString", text)
            made = self._handles("filterReturnValue")(
                self._method(_CONF, "get"), self._method(_CONF, "getAllConfs")
            )
            handle = self._handles("collectArguments")(join, 0, made)
            self._calls[key] = self._callable(self._function(handle))
        return str(self._calls[key](separator))

    def _callable(self, function: JavaObject) -> Callable[[Any], Any]:
        # py4j may not call the function, because its class is not in an exported package. A map may
        # call it. This map is empty: it neither hashes nor compares its keys.
        empty = self._jvm.module("scala.collection.immutable.Map").empty()
        call: Callable[[Any], Any] = empty.withDefault(function).apply
        return call

    def _function(self, handle: JavaObject) -> JavaObject:
        proxies = "java.lang.invoke.MethodHandleProxies"
        return self._jvm.static(proxies, "asInterfaceInstance")(
            self._class("scala.Function1"), handle
        )

    def _handle(self, step: str) -> JavaObject:
        name, _, parameter = step.partition("(")
        owner, _, method = name.rpartition(".")
        types = [self._class(parameter.rstrip(")"))] if parameter else []
        return self._method(owner, method, *types)

    def _method(self, owner: str, name: str, *parameters: JavaObject) -> JavaObject:
        gateway = self._jvm.gateway
        types = gateway.new_array(self._jvm.type("java.lang.Class"), len(parameters))
        for at, parameter in enumerate(parameters):
            types[at] = parameter
        handle = self._lookup.unreflect(self._class(owner).getMethod(name, types))
        return handle.asType(handle.type().generic())

    def _class(self, name: str) -> JavaObject:
        if name == "long":
            return self._jvm.type("java.lang.Long").TYPE
        return self._jvm.static("java.lang.Class", "forName")({"byte[]": "[B"}.get(name, name))

    def _handles(self, method: str) -> Any:
        return self._jvm.static("java.lang.invoke.MethodHandles", method)
