import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * A YARN in this process, on loopback: a resource manager and two node managers. It writes
 * yarn-site.xml into its folder, prints the address of the resource manager, and ends with its
 * standard input.
 */
public final class MiniYarn {
    private MiniYarn() {
    }

    public static void main(String[] args) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // servers that have started would keep the process
        });
        File home = new File(args[0]);
        YarnConfiguration conf = new YarnConfiguration();
        conf.set("yarn.scheduler.capacity.root.queues", "default");
        conf.setInt("yarn.scheduler.capacity.root.default.capacity", 100);
        conf.setFloat("yarn.scheduler.capacity.maximum-am-resource-percent", 0.9f);
        conf.setInt("yarn.nodemanager.resource.memory-mb", 4096);
        conf.setInt("yarn.nodemanager.resource.cpu-vcores", 4);
        conf.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        conf.setFloat("yarn.nodemanager.disk-health-checker."
                + "max-disk-utilization-per-disk-percentage", 99.9f);
        conf.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        conf.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        conf.set("yarn.app.container.log.dir", new File(home, "logs").getPath());
        MiniYARNCluster cluster = new MiniYARNCluster("skipstone", 2, 1, 1);
        cluster.init(conf);
        cluster.start();
        cluster.waitForNodeManagersToConnect(60_000);
        Configuration made = new Configuration(cluster.getConfig());
        // Containers have their own classes.
        made.set("yarn.application.classpath", "");
        try (OutputStream out = new FileOutputStream(new File(home, "yarn-site.xml"))) {
            made.writeXml(out);
        }
        System.out.println(cluster.getConfig().get("yarn.resourcemanager.address"));
        System.out.flush();
        while (System.in.read() >= 0) {
            continue;
        }
        cluster.stop();
        System.exit(0);
    }
}
